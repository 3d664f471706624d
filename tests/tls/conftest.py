"""Certificates, made once: they cost some tenths of a second."""

from collections.abc import Callable

import pytest

from support.server import Serve, Server
from support.tls import NAME, Authority, Pair
from support.tls import connect as connect_to
from support.wire import Wire


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def pair(authority: Authority) -> Pair:
    return authority.issue(NAME, f"*.{NAME}")


@pytest.fixture(scope="module")
def hello(shared_serve: Serve, pair: Pair) -> Server:
    return shared_serve("hello:app", *pair.arguments(), "--keep-alive", "30")


@pytest.fixture
def connect(authority: Authority) -> Callable[[Server], Wire]:
    """Connects to a server as a client that trusts the authority."""
    return lambda server: connect_to(server.address, authority.context())
