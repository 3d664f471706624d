"""The limit on a request of the warm-up: it raises in the main thread, and ends a process that does not come back."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from stanchion.warm_up import Overdue, Timer

FAR_S = 60.0

STUCK = """\
import signal
import time
from stanchion import warm_up

warm_up.END_S = 0.1
# As code in C that does not look for signals.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})


def stuck():
    time.sleep(60)


warm_up.Timer(0.1).start()
stuck()
"""


@pytest.fixture(autouse=True)
def _without_pytests_own_timer() -> Iterator[None]:
    """pytest-timeout has set the only timer of the process."""
    left = signal.setitimer(signal.ITIMER_REAL, 0)
    handler = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *left)


def spin() -> None:
    while True:
        pass


def test_code_of_the_app_that_takes_too_long_raises() -> None:
    timer = Timer(0.01)
    timer.start()
    with pytest.raises(Overdue):
        spin()
    timer.stop()


def test_an_app_that_catches_its_own_errors_does_not_catch_this_one() -> None:
    assert not issubclass(Overdue, Exception)


def test_once_it_has_stopped_nothing_of_it_is_left() -> None:
    before = signal.getsignal(signal.SIGALRM)
    timer = Timer(FAR_S)
    timer.start()
    assert signal.getsignal(signal.SIGALRM) is not before
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    timer.stop()
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_signal_that_comes_while_it_stops_raises_once_nothing_of_it_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = signal.getsignal(signal.SIGALRM)
    timer = Timer(FAR_S)
    timer.start()
    setitimer = signal.setitimer

    def late(which: int, seconds: float) -> None:
        setitimer(which, seconds)
        signal.raise_signal(signal.SIGALRM)

    with monkeypatch.context() as patched:
        patched.setattr(signal, "setitimer", late)
        with pytest.raises(Overdue):
            timer.stop()
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_process_that_does_not_come_back_to_python_ends_with_its_stacks() -> None:
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=FAR_S, check=False)
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr
    assert "in stuck" in ended.stderr
