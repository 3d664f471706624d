"""Connections with TLS that are there when a server reloads, is replaced, leaves or is killed."""

import os
import signal
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from support import processes
from support.address import Address
from support.clock import Clock
from support.gate import Gate
from support.server import Serve, Server
from support.steady import Steady
from support.tls import Authority, Pair, connect
from support.wire import Wire, request

pytestmark = pytest.mark.own("other servers have other ways to do that")


def reload(server: Server) -> None:
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait(r"reloaded: generation \d+ serves", mark)


def upgrade(server: Server) -> None:
    mark, old = server.log.mark(), server.pid
    server.signal(signal.SIGUSR2)
    server.follow(int(server.log.wait(r"upgraded: the new master (\d+) serves", mark)[1]))
    processes.gone(old)


@pytest.mark.parametrize("change", [reload, upgrade])
def test_no_request_is_lost(change: Callable[[Server], None], serve: Serve, authority: Authority, pair: Pair) -> None:
    server = serve("hello:app", *pair.arguments(), "--workers", "2")
    context = authority.context()

    def connect_to(address: Address) -> Wire:
        return connect(address, context)

    with Steady(server.addresses, connect=connect_to) as load:
        for _ in range(3):
            load.more()
            change(server)
        load.more()
    load.assert_no_failure()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGUSR2])
def test_what_is_under_way_is_answered_and_the_others_are_told_the_end(
    number: signal.Signals, serve: Serve, gate: Gate, authority: Authority, pair: Pair, clock: Clock
) -> None:
    deadlines = ("--keep-alive", "1000", "--timeout", "0", "--graceful-timeout", "3600")
    environment = gate.environment | clock.environment
    server = serve("waiting:app", "--threads", "2", *deadlines, *pair.arguments(), env=environment)
    context = authority.context()
    with connect(server.address, context) as busy, connect(server.address, context) as idle:
        busy.send(request("GET", "/wait"))
        gate.announcement()
        assert idle.get("/pid").status == 200
        mark, old = server.log.mark(), server.pid
        server.signal(number)
        if number == signal.SIGHUP:
            server.log.wait(r"reloaded: generation \d+ serves", mark)
        elif number == signal.SIGUSR2:
            server.follow(int(server.log.wait(r"upgraded: the new master (\d+) serves", mark)[1]))
        if number != signal.SIGTERM:
            # It may ask once more until then.
            clock.advance(1000)
        # The server closes it by close_notify: anything else raises.
        assert idle.closed()
        gate.open()
        response = busy.response()
        assert (response.status, response.closes()) == (200, True)
        assert busy.closed()
    if number != signal.SIGHUP:
        processes.gone(old)


def test_a_killed_acceptor_cuts_connections_and_another_one_serves(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    if os.geteuid() != 0:
        pytest.skip("the acceptor shows its connections to nobody but root")
    server = serve("waiting:app", *pair.arguments())
    with connect(server.address, authority.context()) as cut:
        worker = cut.get("/pid").body
        server.acceptor().kill()
        # No close_notify: a client that waits for more must not take it for the end.
        with pytest.raises((ssl.SSLEOFError, ConnectionResetError)):
            cut.sock.recv(1)
    with connect(server.address, authority.context()) as wire:
        assert wire.get("/pid").body == worker


def test_a_listener_that_a_reload_spells_otherwise_keeps_its_options(serve: Serve, pair: Pair, tmp_path: Path) -> None:
    config, path = tmp_path / "conf.py", tmp_path / "socket"
    config.write_text(f"bind = ['localhost:0', 'unix:{path}?tls=false']")
    server = serve("hello:app", *pair.arguments(), "--config", str(config), bind=None)
    with Wire.connect(Address(path=str(path))) as wire:
        assert wire.get("/").status == 200
    config.write_text(f"bind = ['localhost:0', 'unix:{tmp_path}/./socket?tls=false']")
    reload(server)
    with Wire.connect(Address(path=str(path))) as wire:
        assert wire.get("/").status == 200
