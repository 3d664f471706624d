"""Deadlines of single requests, and event loops that do not turn.

How long a loop has not turned is real time: a jump of the clock looks to the master as if it had been held up itself.
"""

import signal
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.processes import gone
from support.server import Serve
from support.wire import request

pytestmark = pytest.mark.own("gunicorn has deadlines for workers only")

ASGI = ("--interface", "asgi", "--loop", "asyncio")


@pytest.mark.parametrize("cancels", [False, True])
def test_a_request_past_its_deadline_is_answered_504_and_the_app_is_told(
    serve: Serve, gate: Gate, clock: Clock, cancels: bool
) -> None:
    deadline = ["--timeout", "100", "--loop-timeout", "0", *(["--cancel-on-timeout"] if cancels else [])]
    server = serve("looping:app", *ASGI, *deadline, env=gate.environment | clock.environment)
    mark = server.log.mark()
    with server.connect() as late, server.connect() as other:
        late.send(request("GET", "/late?0.1"))
        pid = gate.announcement().split()[0]
        other.send(request("GET", "/until-go"))
        begun = other.head()
        clock.advance(101)
        assert late.response().status == 504
        if cancels:
            assert gate.announcement() == f"{pid} is cancelled"
        else:
            assert gate.announcements(2) == [f"{pid} is told", f"{pid} goes on"]
        assert late.get("/go").text == pid, "the connection and the worker go on"
        other.read_body(begun)
        assert begun.text == "begun\n" * 1000 + "ended\n" * 1000, "an answer that has begun is not limited"
    server.log.wait(r"the request took too long.*GET /late\?0\.1|GET /late\?0\.1.*the request took too long", mark)
    assert not server.log.matches("is killed|the app failed|Traceback", mark)


def test_without_a_timeout_there_is_no_deadline(serve: Serve, gate: Gate) -> None:
    server = serve("looping:app", *ASGI, "--timeout", "0", "--loop-timeout", "0.3", env=gate.environment)
    mark = server.log.mark()
    with server.connect() as wire:
        wire.send(request("GET", "/block"))
        gate.announcement()
        server.log.wait("has not turned", mark)
        assert wire.silent(1.2)
        gate.let_pass(1)
        assert wire.response().status == 200
    server.log.wait("turns again", mark)
    assert not server.log.matches("is killed", mark)


def test_a_blocked_loop_is_named_once_with_its_stack(serve: Serve, gate: Gate) -> None:
    server = serve("looping:app", *ASGI, "-w", "2", "--loop-timeout", "0.5", env=gate.environment)
    mark = server.log.mark()
    with server.connect() as wire, server.connect() as other:
        wire.send(request("GET", "/block"))
        pid = gate.announcement().split()[0]
        server.log.wait(rf"the event loop of worker \d \({pid}\) has not turned for \d+\.\d s \(loop_timeout\)", mark)
        server.log.wait("wait_for_pass", mark)
        assert other.get("/").text != pid
        gate.let_pass(1)
        assert wire.response().text == pid, "its request stays its"
        server.log.wait(rf"the event loop of worker \d \({pid}\) turns again, after ", mark)
    # The log also names a loop that gets no core for so long.
    told = server.log.matches(rf"the event loop of worker \d \({pid}\) (has not turned|turns again)", mark)
    assert all(one[1] != following[1] for one, following in pairwise(told)), "once, until it turns again"


def test_a_loop_that_is_stuck_is_replaced_and_its_requests_are_answered_504(
    serve: Serve, gate: Gate, tmp_path: Path
) -> None:
    config = tmp_path / "end.conf.py"
    config.write_text(
        "import os\nfrom rendezvous import announce\ndef worker_abort(worker): announce(f'{os.getpid()} aborts')\n"
    )
    # Each loop must get a core now and then in so long, or it is taken for stuck, too.
    arguments = ["--timeout", "4", "--loop-timeout", "2", "-c", str(config)]
    server = serve("looping:app", *ASGI, "-w", "2", *arguments, env=gate.environment)
    mark = server.log.mark()
    with server.connect() as stuck, server.connect() as other:
        stuck.send(request("GET", "/sleep?60"))
        pid = gate.announcement().split()[0]
        assert stuck.response().status == 504
        assert other.get("/").text != pid
    eventually(lambda: gate.announcement() == f"{pid} aborts", "its hook has run")
    server.log.wait(rf"worker \d \({pid}\) is killed: its event loop has not turned for \d+\.\d s \(timeout\)", mark)
    gone(int(pid))
    server.log.wait("worker ready", mark)
    blocked = [one for one in map("\n".join, server.log.entries()) if f"({pid}):" in one and "looping.py" in one]
    assert len(blocked) == 2, "its stacks when it was late, and before it was killed"


def test_a_worker_that_is_stopped_is_not_replaced(serve: Serve, gate: Gate, counts: Counts) -> None:
    limits = ["--timeout", "3", "--loop-timeout", "0.5"]
    server = serve("looping:app", *ASGI, "-w", "2", *limits, *counts.arguments, env=gate.environment)
    mark = server.log.mark()
    with server.connect() as wire:
        pid = int(wire.get("/").text)
        # The client may have the answer before the worker gives the seat back, and a stopped worker with a busy seat is
        # replaced.
        eventually(lambda: all(one["seats_busy"] == 0 for one in counts.workers()), "the seats are idle")
        worker = psutil.Process(pid)
        worker.send_signal(signal.SIGSTOP)
        try:
            server.log.wait(rf"worker \d \({pid}\) is stopped, by a signal or a debugger", mark)
            assert all(int(wire.get("/").text) != pid for _ in range(20))
            # Longer than `timeout` too.
            time.sleep(3.5)
            assert worker.is_running() and worker.status() == psutil.STATUS_STOPPED
        finally:
            worker.send_signal(signal.SIGCONT)
        server.log.wait(rf"the event loop of worker \d \({pid}\) turns again", mark)
    assert worker.is_running()
    assert not server.log.matches(rf"\({pid}\) is killed", mark)


def test_while_the_app_starts_up_or_shuts_down_its_loop_may_take_its_time(
    build: Serve, gate: Gate, tmp_path: Path
) -> None:
    app = tmp_path / "slow_start.py"
    app.write_text(
        "from rendezvous import announce, wait_for_pass\n"
        "async def app(scope, receive, send):\n"
        "    if scope['type'] == 'lifespan':\n"
        "        for said in ('startup', 'shutdown'):\n"
        "            await receive()\n"
        "            announce(said)\n"
        "            wait_for_pass()\n"
        "            await send({'type': f'lifespan.{said}.complete'})\n"
        "        return\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': b'ok'})\n"
    )
    limits = ["--timeout", "2", "--loop-timeout", "1"]
    server = build("slow_start:app", *ASGI, "--pythonpath", str(tmp_path), *limits, env=gate.environment).launch()

    def held_up(said: str, for_s: float) -> None:
        assert gate.announcement() == said
        mark = server.log.mark()
        time.sleep(for_s)
        assert not server.log.matches("has not turned|is killed", mark)
        gate.let_pass(1)

    held_up("startup", 2.5)
    with server.wait_until_ready().connect() as wire:
        assert wire.get("/").text == "ok"
    server.signal(signal.SIGTERM)
    held_up("shutdown", 1.5)
    assert server.exit_code() == 0
