"""A request past its deadline: an answer, stacks in the log, a new worker; and how an app asks for more time."""

import re
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from support.clock import Clock
from support.gate import Gate
from support.patience import eventually
from support.processes import gone, sleeps, standing_still
from support.server import Serve
from support.wire import request

pytestmark = pytest.mark.own("gunicorn resets the connection, and has no such key in its environ")


def test_an_app_that_asks_for_more_time_has_it(serve: Serve, gate: Gate, clock: Clock) -> None:
    times = ("--timeout", "100", "--keep-alive", "10000")
    server = serve("waiting:stuck", *times, env=gate.environment | clock.environment)
    with server.connect() as wire:
        for more_s in (3000, 300):
            wire.send(request("GET", f"/extend-and-wait?{more_s}"))
            gate.announcement()
            clock.advance(200)
            assert wire.silent(0.5), "it is long past its timeout"
            gate.let_pass(1)
            assert wire.response().text == "ok", "and the next request begins anew"
        wire.send(request("GET", "/extend-and-wait?300"))
        gate.announcement()
        clock.advance(301)
        assert wire.response().status == 504


def test_without_asking_there_is_none(serve: Serve) -> None:
    server = serve("waiting:stuck", "--timeout", "1")
    with server.connect() as wire:
        assert wire.get("/extend?0").status == 504, "a deadline never moves nearer, and 0 s from now is over in two"


def test_without_a_timeout_there_is_nothing_to_extend(serve: Serve) -> None:
    server = serve("waiting:stuck", "--timeout", "0")
    with server.connect() as wire:
        assert wire.get("/extend?0").text == "ok"


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "2592001"])
def test_what_is_no_extension_is_refused(serve: Serve, seconds: str) -> None:
    server = serve("waiting:stuck", "--timeout", "60")
    with server.connect() as wire:
        text = wire.get(f"/extend?{seconds}").text
        assert "from 0 to 2592000 (30 days), not " in text


@pytest.mark.parametrize("target", ["/c", "/wait?stuck"])
def test_the_log_has_the_stacks_and_what_was_asked(serve: Serve, gate: Gate, clock: Clock, target: str) -> None:
    server = serve("waiting:stuck", "--timeout", "100", "--threads", "2", env=gate.environment | clock.environment)
    mark = server.log.mark()
    began_s = time.monotonic()
    with server.connect() as stuck:
        stuck.send(request("GET", target))
        pid = int(gate.announcement().split()[0])
        eventually(lambda: sleeps(pid), "it is stuck")
        clock.advance(101)
        assert stuck.response().status == 504
    ran = server.log.wait(rf"GET {re.escape(target)}.* (\d+\.\d) s\b", mark)
    assert 100.9 <= float(ran[1]) <= 101.1 + time.monotonic() - began_s
    server.log.wait("lock_in_c" if target == "/c" else "wait_for_pass", mark)
    # The seats come first, and of all others there is only their number: at least the main thread is no seat.
    server.log.wait(r"seat \d is thread 0x", mark)
    server.log.wait(r"^\d+ other threads? (is|are) in `stanchion ctl dump`$", mark)
    gone(pid)
    server.log.wait("worker ready", mark)
    with server.connect() as wire:
        assert wire.get("/").status == 200


@pytest.fixture
def hooks(tmp_path: Path) -> list[str]:
    """The arguments for a config file whose hooks announce how a worker ends."""
    config = tmp_path / "end.conf.py"
    config.write_text(
        "import os, threading\n"
        "from rendezvous import announce\n"
        "def worker_abort(worker):\n"
        "    assert threading.current_thread() is threading.main_thread()\n"
        "    announce(f'worker_abort {os.getpid()}')\n"
        "def worker_exit(server, worker): announce(f'worker_exit {os.getpid()}')\n"
    )
    return ["-c", str(config)]


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_worker_runs_its_hooks_before_it_goes(serve: Serve, gate: Gate, hooks: list[str], threads: str) -> None:
    server = serve("waiting:stuck", "--timeout", "1", "--threads", threads, *hooks, env=gate.environment)
    mark = server.log.mark()
    with server.connect() as stuck:
        assert stuck.get("/sleep?60").status == 504
    aborted = gate.announcement()
    pid = int(aborted.removeprefix("worker_abort "))
    assert gate.announcement() == f"worker_exit {pid}"
    server.log.wait(rf"worker 0 \({pid}\) exited with code 1: a request has run for .* past its deadline", mark)
    server.log.wait("sleep", mark)
    assert not server.log.matches("SIGKILL", mark)
    server.log.wait(r"worker ready .*worker=\d", mark)
    with server.connect() as wire:
        assert wire.get("/").status == 200


def test_a_worker_stuck_in_c_is_killed_without_its_hooks(
    serve: Serve, gate: Gate, clock: Clock, hooks: list[str]
) -> None:
    server = serve("waiting:stuck", "--timeout", "100", *hooks, env=gate.environment | clock.environment)
    mark = server.log.mark()
    with server.connect() as stuck:
        stuck.send(request("GET", "/c"))
        pid = int(gate.announcement().split()[0])
        eventually(lambda: sleeps(pid), "it is stuck")
        clock.advance(101)
        assert stuck.response().status == 504
    server.log.wait(rf"worker 0 \({pid}\) was killed by SIGKILL: a request has run for .* past its deadline", mark)
    gone(pid)
    assert not gate.announced()
    with server.connect() as wire:
        assert wire.get("/").status == 200


def test_a_hook_that_takes_too_long_is_cut_short(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    config = tmp_path / "slow.conf.py"
    config.write_text("import time\ndef worker_abort(worker): time.sleep(60)\n")
    server = serve("waiting:stuck", "--timeout", "1", "-c", str(config), env=gate.environment)
    mark = server.log.mark()
    with server.connect() as stuck:
        assert stuck.get("/sleep?60").status == 504
    server.log.wait(r"was killed by SIGKILL: a request has run for .* past its deadline", mark)
    with server.connect() as wire:
        assert wire.get("/").status == 200


def test_other_requests_of_the_worker_may_end_within_a_second(
    serve: Serve, gate: Gate, clock: Clock, tmp_path: Path
) -> None:
    server = serve("waiting:stuck", "--timeout", "200", "--threads", "3", env=gate.environment | clock.environment)
    mark = server.log.mark()
    with ExitStack() as stack:
        stuck = stack.enter_context(server.connect())
        stuck.send(request("GET", "/wait?stuck"))
        pid = int(gate.announcement().split()[0])
        # The others connect behind it, or would idle for as long. Their own deadlines are well past the grace then.
        clock.advance(150)
        ends, stays = (stack.enter_context(server.connect()) for _ in range(2))
        ends.send(request("GET", f"/until?{tmp_path}/end"))
        stays.send(request("GET", f"/until?{tmp_path}/never"))
        assert {int(line.split()[0]) for line in gate.announcements(2)} == {pid}
        clock.advance(51)
        assert stuck.response().status == 504
        # When its stacks are written one without others would be killed.
        server.log.wait(rf"the stacks of worker 0 \({pid}\)", mark)
        with standing_still(psutil.Process(server.pid)):
            (tmp_path / "end").touch()
            assert ends.response().status == 200
        assert stays.response().status == 502
    gone(pid)


def test_a_timeout_does_not_hold_up_the_end(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:stuck", "--timeout", "0", env=gate.environment)
    with server.connect() as stuck:
        stuck.send(request("GET", "/c"))
        gate.announcement()
        server.signal(signal.SIGINT)
        assert server.exit_code() == 0
