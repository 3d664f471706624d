"""Sockets of a service manager, of which one is for clients that do not speak TLS yet."""

import socket

import pytest

from support import manager
from support.server import Serve
from support.tls import Authority, Pair
from support.tls import connect as connect_to
from support.wire import Wire

pytestmark = pytest.mark.own("other servers take the sockets, or not, each in its own way")


def test_a_passed_socket_that_is_called_http_is_not_for_tls(serve: Serve, authority: Authority, pair: Pair) -> None:
    with socket.create_server(("127.0.0.1", 0)) as secure, socket.create_server(("127.0.0.1", 0)) as plain:
        options = manager.passing([secure, plain])
        options["env"] = {"LISTEN_FDS": "2", "LISTEN_FDNAMES": "https:http"}
        server = serve("hello:app", *pair.arguments(), **options)
        ports = [passed.getsockname()[1] for passed in (secure, plain)]
    assert f"listening at https://127.0.0.1:{ports[0]} by descriptor 3 (https)" in server.log.text()
    assert f"listening at http://127.0.0.1:{ports[1]} by descriptor 4 (http)" in server.log.text()
    with connect_to(server.addresses[0], authority.context()) as wire:
        assert wire.get("/").body == b"hello\n"
    with Wire.connect(server.addresses[1]) as wire:
        assert wire.get("/").body == b"hello\n"
