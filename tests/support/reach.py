"""A server as its clients reach it: directly, or behind an nginx in a namespace of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from support import netns
from support.address import Address
from support.netns import Namespace
from support.nginx import NGINX, Nginx
from support.server import Serve, Server

T = TypeVar("T")

_MISSING = netns.unavailable() if NGINX else "nginx is not installed"
behind_nginx = pytest.mark.skipif(bool(_MISSING), reason=f"NOT TESTED BEHIND NGINX: {_MISSING}")
DIRECTLY, BEHIND_NGINX = "directly", "behind nginx"
WAYS = [DIRECTLY, pytest.param(BEHIND_NGINX, marks=behind_nginx)]
"""The ways, for `pytest.mark.parametrize`."""


@dataclass(frozen=True)
class Reach:
    server: Server
    address: Address
    namespace: Namespace | None

    @property
    def http(self) -> str:
        return f"http://{self.address.host}:{self.address.port}"

    @property
    def ws(self) -> str:
        return f"ws://{self.address.host}:{self.address.port}"

    def run(self, function: Callable[[], T]) -> T:
        """Run the client's part where the server can be reached. Threads that it starts are there too."""
        return self.namespace.run(function) if self.namespace else function()


def nothing_failed(server: Server) -> None:
    """A client may have got all it asked for from an app that fails afterwards."""
    assert not server.log.matches("the app failed")


@contextmanager
def reached(way: str, serve: Serve, home: Path, app: str, *arguments: str, **options: Any) -> Iterator[Reach]:
    """Start a server on a free port, or the nginx of examples/nginx.conf and a server on a unix socket behind it."""
    if way == DIRECTLY:
        server = serve(app, *arguments, **options)
        yield Reach(server, server.address, None)
        nothing_failed(server)
        return
    namespace = Namespace()
    try:
        bind = f"unix:{home}/app.sock"
        nginx = Nginx(home / "nginx", bind, namespace)
        try:
            server = serve(app, *arguments, bind=bind, **options)
            yield Reach(server, nginx.address, namespace)
            nothing_failed(server)
        finally:
            nginx.stop()
    finally:
        namespace.remove()
