"""No event loop stays deaf: neither to what another worker has written over, nor after a panic."""

from contextlib import ExitStack

import pytest

from support.asgi import all_run
from support.gate import Gate
from support.server import Serve
from support.wire import BrokenOff, Wire, request

pytestmark = pytest.mark.own("gunicorn's processes share no memory")

ASGI = ("--interface", "asgi", "--loop", "asyncio", "--worker-concurrency", "8", "--worker-sessions", "8")


def test_a_loop_takes_requests_though_another_worker_says_that_it_is_awake_and_full(serve: Serve, gate: Gate) -> None:
    server = serve("looping:deafening", *ASGI, "-w", "2", env=gate.environment)
    with server.connect() as mad, server.connect() as wire:
        mad.send(request("GET", "/deafen"))
        deafens, through = gate.announcements(2)
        pid = int(deafens.removesuffix(" deafens"))
        assert through == f"{pid} is through"
        for _ in range(3):
            assert int(wire.get("/").text) != pid
        assert mad.silent(0.1), "its loop waits"
        gate.let_pass(1)
        assert int(mad.response().text) == pid


def test_an_app_hears_that_its_client_has_gone_though_another_worker_has_wiped_the_notice(
    serve: Serve, gate: Gate
) -> None:
    server = serve("looping:deafening", *ASGI, "-w", "2", env=gate.environment)
    with server.connect() as mad, ExitStack() as stack:
        leaving: dict[int, Wire] = {}

        def begin() -> int:
            wire = stack.enter_context(server.connect())
            wire.send(request("GET", "/late?0"))
            pid = int(gate.announcement().removesuffix(" begins"))
            leaving[pid] = wire
            return pid

        all_run(begin, 2)
        mad.send(request("GET", "/deafen"))
        deafens = int(gate.announcement().removesuffix(" deafens"))
        (deaf,) = leaving.keys() - {deafens}
        leaving[deaf].close()
        assert sorted(gate.announcements(3)) == sorted([f"{deaf} is told", f"{deaf} goes on", f"{deafens} is through"])
        gate.let_pass(1)
        assert mad.response().status == 200


def test_after_a_panic_a_loop_gives_up_what_it_runs_and_its_worker_is_replaced(serve: Serve, gate: Gate) -> None:
    server = serve("looping:panicking", *ASGI, "-w", "1", env=gate.environment)
    mark = server.log.mark()
    with server.connect() as begun, server.connect() as waiting, server.connect() as late, server.connect() as wire:
        begun.send(request("GET", "/hold"))
        started = begun.head()
        waiting.send(request("GET", "/wait?60"))
        late.send(request("GET", "/late?60"))
        pid = gate.announcement().split()[0]
        assert gate.announcement() == f"{pid} begins"
        assert wire.get("/arm").text == pid
        assert wire.get("/").status == 502
        assert [waiting.response().status, late.response().status] == [502, 502]
        with pytest.raises(BrokenOff):
            begun.read_body(started)
        assert wire.get("/").text != pid
    assert gate.announcement() == f"{pid} is cancelled"
    assert gate.announced() == []
    server.log.wait("an event loop has panicked: its requests are given up, and the worker leaves", mark)
    assert not server.log.matches("the app failed")
