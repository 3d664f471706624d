"""A request past its deadline: an answer, stacks in the log, a worker anew; and how an app asks for more time."""

import re
import signal
from pathlib import Path

import pytest

from support.gate import Gate
from support.processes import gone
from support.server import Serve
from support.wire import request

pytestmark = pytest.mark.own("gunicorn resets the connection, and has no such key in its environ")


def test_an_app_that_asks_for_more_time_has_it(serve: Serve) -> None:
    server = serve("stuck:app", "--timeout", "1")
    with server.connect() as wire:
        assert wire.get("/extend?30").text == "ok"
        assert wire.get("/extend?3").text == "ok", "and the next request begins anew"


def test_without_asking_there_is_none(serve: Serve) -> None:
    server = serve("stuck:app", "--timeout", "1")
    with server.connect() as wire:
        assert wire.get("/extend?0").status == 504, "a deadline never moves nearer, and 0 s from now is over in two"


def test_without_a_timeout_there_is_nothing_to_extend(serve: Serve) -> None:
    server = serve("stuck:app", "--timeout", "0")
    with server.connect() as wire:
        assert wire.get("/extend?0").text == "ok"


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "2592001"])
def test_what_is_no_extension_is_refused(serve: Serve, seconds: str) -> None:
    server = serve("stuck:app", "--timeout", "1")
    with server.connect() as wire:
        text = wire.get(f"/extend?{seconds}").text
        assert "from 0 to 2592000 (30 days), not " in text


@pytest.mark.parametrize("target", ["/c", "/wait?stuck"])
def test_the_log_has_the_stacks_and_what_was_asked(serve: Serve, gate: Gate, target: str) -> None:
    server = serve("stuck:app", "--timeout", "1", "--threads", "2", env=gate.environment)
    mark = server.log.mark()
    with server.connect() as stuck:
        stuck.send(request("GET", target))
        pid = int(gate.announcement().split()[0])
        assert stuck.response().status == 504
    server.log.wait(rf"GET {re.escape(target)}.* [12](\.\d+)? s\b|GET {re.escape(target)}.*\b1\d\d\d ms", mark)
    server.log.wait("lock_in_c" if target == "/c" else "wait_for_pass", mark)
    server.log.wait(r"seat \d is thread 0x", mark)
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
    server = serve("stuck:app", "--timeout", "1", "--threads", threads, *hooks, env=gate.environment)
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


def test_a_worker_stuck_in_c_is_killed_without_its_hooks(serve: Serve, gate: Gate, hooks: list[str]) -> None:
    server = serve("stuck:app", "--timeout", "1", *hooks, env=gate.environment)
    mark = server.log.mark()
    with server.connect() as stuck:
        stuck.send(request("GET", "/c"))
        pid = int(gate.announcement().split()[0])
        assert stuck.response().status == 504
    server.log.wait(rf"worker 0 \({pid}\) was killed by SIGKILL: a request has run for .* past its deadline", mark)
    gone(pid)
    assert not gate.announced()
    with server.connect() as wire:
        assert wire.get("/").status == 200


def test_a_hook_that_takes_too_long_is_cut_short(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    config = tmp_path / "slow.conf.py"
    config.write_text("import time\ndef worker_abort(worker): time.sleep(60)\n")
    server = serve("stuck:app", "--timeout", "1", "-c", str(config), env=gate.environment)
    mark = server.log.mark()
    with server.connect() as stuck:
        assert stuck.get("/sleep?60").status == 504
    server.log.wait(r"was killed by SIGKILL: a request has run for .* past its deadline", mark)
    with server.connect() as wire:
        assert wire.get("/").status == 200


def test_other_requests_of_the_worker_may_end_within_a_second(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    server = serve("stuck:app", "--timeout", "2", "--threads", "3", env=gate.environment)
    with server.connect() as stuck, server.connect() as ends, server.connect() as stays:
        stuck.send(request("GET", "/wait?stuck"))
        pid = int(gate.announcement().split()[0])
        # So that their own deadlines, 3.5 s from the beginning, are well past the grace, which ends at 3.
        assert stuck.silent(1.5)
        ends.send(request("GET", f"/until?{tmp_path}/end"))
        stays.send(request("GET", f"/until?{tmp_path}/never"))
        assert {int(line.split()[0]) for line in gate.announcements(2)} == {pid}
        assert stuck.response().status == 504
        (tmp_path / "end").touch()
        assert ends.response().status == 200
        assert stays.response().status == 502
    gone(pid)


def test_a_timeout_does_not_hold_up_the_end(serve: Serve, gate: Gate) -> None:
    server = serve("stuck:app", "--timeout", "0", env=gate.environment)
    with server.connect() as stuck:
        stuck.send(request("GET", "/c"))
        gate.announcement()
        server.signal(signal.SIGINT)
        assert server.exit_code() == 0
