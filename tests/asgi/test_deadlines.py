"""Deadlines of single requests, and event loops that do not turn."""

import signal
from pathlib import Path

import psutil
import pytest

from support.gate import Gate
from support.processes import gone
from support.server import Serve
from support.wire import request

pytestmark = pytest.mark.own("gunicorn has deadlines for workers only")

ASGI = ("--interface", "asgi", "--loop", "asyncio")


@pytest.mark.parametrize("cancels", [False, True])
def test_a_request_past_its_deadline_is_answered_504_and_the_app_is_told(
    serve: Serve, gate: Gate, cancels: bool
) -> None:
    cancel = ["--cancel-on-timeout"] if cancels else []
    server = serve("looping:app", *ASGI, "--timeout", "1", *cancel, env=gate.environment)
    mark = server.log.mark()
    with server.connect() as late, server.connect() as other:
        late.send(request("GET", "/late?0.1"))
        pid = gate.announcement().split()[0]
        other.send(request("GET", "/stream?2.5"))
        assert late.response().status == 504
        if cancels:
            assert gate.announcement() == f"{pid} is cancelled"
        else:
            assert gate.announcements(2) == [f"{pid} is told", f"{pid} goes on"]
        assert late.get("/").text == pid, "the connection and the worker go on"
        assert other.response().text == "begun\nended\n", "an answer that has begun is not limited"
    server.log.wait(r"the request took too long.*GET /late\?0\.1|GET /late\?0\.1.*the request took too long", mark)
    assert not server.log.matches("is killed|the app failed|Traceback", mark)


def test_without_a_timeout_there_is_no_deadline(serve: Serve, gate: Gate) -> None:
    server = serve("looping:app", *ASGI, "--timeout", "0", "--loop-timeout", "0.3", env=gate.environment)
    mark = server.log.mark()
    with server.connect() as wire:
        assert wire.get("/sleep?1.5").status == 200
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
    assert len(server.log.matches("has not turned", mark)) == 1


def test_a_loop_that_is_stuck_is_replaced_and_its_requests_are_answered_504(
    serve: Serve, gate: Gate, tmp_path: Path
) -> None:
    config = tmp_path / "end.conf.py"
    config.write_text(
        "import os\nfrom rendezvous import announce\ndef worker_abort(worker): announce(f'{os.getpid()} aborts')\n"
    )
    arguments = ["--timeout", "2", "--loop-timeout", "1", "-c", str(config)]
    server = serve("looping:app", *ASGI, "-w", "2", *arguments, env=gate.environment)
    mark = server.log.mark()
    with server.connect() as stuck, server.connect() as other:
        stuck.send(request("GET", "/sleep?60"))
        pid = gate.announcement().split()[0]
        assert stuck.response().status == 504
        assert other.get("/").text != pid
    assert gate.announcement() == f"{pid} aborts"
    server.log.wait(rf"worker \d \({pid}\) is killed: its event loop has not turned for \d+\.\d s \(timeout\)", mark)
    gone(int(pid))
    server.log.wait("worker ready", mark)
    assert len(server.log.matches("the stacks of worker", mark)) == 2, "when it was late, and before it was killed"


def test_a_worker_that_is_stopped_is_not_replaced(serve: Serve, gate: Gate) -> None:
    server = serve("looping:app", *ASGI, "-w", "2", "--timeout", "1", "--loop-timeout", "0.5", env=gate.environment)
    mark = server.log.mark()
    with server.connect() as wire:
        pid = int(wire.get("/").text)
        worker = psutil.Process(pid)
        worker.send_signal(signal.SIGSTOP)
        try:
            server.log.wait(rf"worker \d \({pid}\) is stopped, by a signal or a debugger", mark)
            assert all(int(wire.get("/").text) != pid for _ in range(20))
            # Longer than `timeout` too, each of them much shorter.
            for _ in range(5):
                assert wire.get("/wait?0.4").status == 200
        finally:
            worker.send_signal(signal.SIGCONT)
        server.log.wait(rf"the event loop of worker \d \({pid}\) turns again", mark)
    assert worker.is_running()
    assert not server.log.matches("is killed", mark)


def test_while_the_app_starts_up_or_shuts_down_its_loop_may_take_its_time(
    serve: Serve, gate: Gate, tmp_path: Path
) -> None:
    app = tmp_path / "slow_start.py"
    app.write_text(
        "import time\n"
        "async def app(scope, receive, send):\n"
        "    if scope['type'] == 'lifespan':\n"
        "        for said, seconds in (('startup', 1.5), ('shutdown', 0.8)):\n"
        "            await receive()\n"
        "            time.sleep(seconds)\n"
        "            await send({'type': f'lifespan.{said}.complete'})\n"
        "        return\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': b'ok'})\n"
    )
    limits = ["--timeout", "1", "--loop-timeout", "0.5"]
    server = serve("slow_start:app", *ASGI, "--pythonpath", str(tmp_path), *limits)
    with server.connect() as wire:
        assert wire.get("/").text == "ok"
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    assert not server.log.matches("has not turned|is killed")
