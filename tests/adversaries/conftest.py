"""A server that speaks TLS, which adversaries of several files break the rules of."""

from collections.abc import Iterator

import pytest

from support.server import Serve
from support.target import Target, launch
from support.tls import NAME, Authority


@pytest.fixture(scope="module")
def kind_of_key() -> str:
    return "ecdsa"


@pytest.fixture(scope="module")
def started(shared_serve: Serve, kind_of_key: str, tmp_path_factory: pytest.TempPathFactory) -> Target:
    home = tmp_path_factory.mktemp("target")
    authority = Authority(home)
    pair = authority.issue(NAME, key=kind_of_key)
    target = launch(shared_serve, home, "bodies:compressible", *pair.arguments(), "--http-protocols", "h2,h1")
    target.authority = authority
    return target


@pytest.fixture
def target(started: Target) -> Iterator[Target]:
    """The server, which is itself again after each test."""
    yield started
    started.answers_others()
    started.is_itself_again()
