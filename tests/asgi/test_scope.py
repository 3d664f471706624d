"""The scope of a request, key by key: by itself, and beside uvicorn's for the same request."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from support.asgi import OURS, Flavour
from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = pytest.mark.own("it has servers of its own")

APP = "asgi_cases:app"


@pytest.fixture(scope="module")
def served(flavour: Flavour, shared_serve: Serve) -> Server:
    return flavour.serve(shared_serve, APP, "--lifespan", "off")


def scope_of(wire: Wire, raw: bytes) -> dict[str, Any]:
    wire.send(raw)
    response = wire.response()
    assert response.status == 200, response.body
    scope: dict[str, Any] = response.json()
    return scope


def test_every_key_and_type(served: Server, flavour: Flavour) -> None:
    with served.connect() as wire:
        client = wire.sock.getsockname()
        scope = scope_of(wire, request("GET", "/scope/caf%C3%A9%2Fx?q=%20&r", ["X-A: 1", "Accept: */*", "x-a: 2"]))
    assert scope["type"] == "'http'"
    assert scope["http_version"] == "'1.1'"
    assert scope["method"] == "'GET'"
    assert scope["scheme"] == "'http'"
    assert scope["path"] == "'/scope/café/x'"
    assert scope["raw_path"] == "b'/scope/caf%C3%A9%2Fx'"
    assert scope["query_string"] == "b'q=%20&r'"
    assert scope["root_path"] == "''"
    assert scope["client"] == repr(("127.0.0.1", client[1]))
    assert scope["server"] == repr(("127.0.0.1", served.address.port))
    assert scope["state"] == "{}"
    assert scope["headers"].startswith("[(b'host', b'test'), (b'x-a', b'1'), (b'accept', b'*/*'), (b'x-a', b'2')")
    if flavour.is_ours:
        leaving = r"<asyncio\.locks\.Event object at 0x[0-9a-f]+ \[unset\]>"
        assert re.fullmatch(rf"{{'stanchion': {{'leaving': {leaving}}}}}", scope["extensions"])
    # With a later version frameworks would rely on behaviour that uvicorn does not have.
    assert scope["asgi"] == "{'version': '3.0', 'spec_version': '2.3'}"


def test_what_one_request_spoils_the_next_does_not_see(served: Server, flavour: Flavour) -> None:
    if not flavour.is_ours:
        pytest.skip("uvicorn has no extensions")
    with served.connect() as wire:
        first, second = (scope_of(wire, request("GET", "/scope")) for _ in range(2))
    for scope in (first, second):
        scope["headers"] = scope["headers"].partition("x-request-start")[0]
    assert first == second
    assert "spoilt" not in str(second)


@pytest.mark.parametrize(
    ("sent", "path", "raw_path", "query"),
    [
        pytest.param("/a//b/../c;d", "/a//b/../c;d", b"/a//b/../c;d", b"", marks=pytest.mark.large),
        pytest.param("/a?", "/a", b"/a", b"", marks=pytest.mark.large),
        ("/a?b?c", "/a", b"/a", b"b?c"),
        ("/%FFx", "/\ufffdx", b"/%FFx", b""),
        pytest.param("/%2", "/%2", b"/%2", b"", marks=pytest.mark.large),
        pytest.param("http://test/a?b", "/a", b"/a", b"b", marks=pytest.mark.large),
        pytest.param("*", "*", b"*", b"", marks=pytest.mark.large),
    ],
)
def test_targets(served: Server, flavour: Flavour, sent: str, path: str, raw_path: bytes, query: bytes) -> None:
    method = "OPTIONS" if sent == "*" else "GET"
    with served.connect() as wire:
        scope = scope_of(wire, request(method, sent))
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (repr(path), repr(raw_path), repr(query))
    assert scope["method"] == repr(method)


def test_http_1_0(served: Server) -> None:
    with served.connect() as wire:
        scope = scope_of(wire, request("GET", "/", version="1.0", host=None))
    assert scope["http_version"] == "'1.0'"


@pytest.mark.parametrize(
    ("fields", "scheme", "client"),
    [
        (["X-Forwarded-Proto: https", "X-Forwarded-For: 10.1.2.3"], "https", "10.1.2.3"),
        (["X-Forwarded-For: 6.6.6.6, 10.1.2.3, 127.0.0.1"], "http", "10.1.2.3"),
        (["X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 2001:db8::1"], "http", "2001:db8::1"),
    ],
)
def test_a_trusted_proxy_says_who_the_client_is(served: Server, fields: list[str], scheme: str, client: str) -> None:
    """As uvicorn has it, which for WSGI would be the app's business: REMOTE_ADDR is the peer's there."""
    with served.connect() as wire:
        scope = scope_of(wire, request("GET", "/", fields))
    assert (scope["scheme"], scope["client"]) == (repr(scheme), repr((client, 0)))


@pytest.mark.parametrize("loop", OURS)
def test_a_proxy_may_say_so_in_forwarded(serve: Serve, loop: str) -> None:
    server = OURS[loop].serve(serve, APP, "--forwarded-header", "forwarded")
    fields = ["Forwarded: for=6.6.6.6, for=10.1.2.3;proto=https", "X-Forwarded-For: 7.7.7.7"]
    with server.connect() as wire:
        for said in (fields, fields, fields[1:]):
            scope = scope_of(wire, request("GET", "/", said))
            is_said = said is fields
            assert scope["scheme"] == repr("https" if is_said else "http")
            assert ("10.1.2.3" in scope["client"]) == is_said and "7.7.7.7" not in scope["client"]


def test_other_clients_may_not_say_so(serve: Serve, flavour: Flavour) -> None:
    server = flavour.serve(serve, APP, "--lifespan", "off", "--forwarded-allow-ips", "10.9.8.7")
    with server.connect() as wire:
        client = wire.sock.getsockname()
        fields = ["X-Forwarded-For: 10.1.2.3", "X-Forwarded-Proto: https"]
        scope = scope_of(wire, request("GET", "/", fields))
    assert (scope["scheme"], scope["client"]) == ("'http'", repr(("127.0.0.1", client[1])))


@pytest.mark.parametrize("loop", OURS)
def test_a_unix_socket(serve: Serve, tmp_path: Path, loop: str) -> None:
    path = tmp_path / "s"
    server = OURS[loop].serve(serve, APP, bind=f"unix:{path}")
    with server.connect() as wire:
        scope = scope_of(wire, request("GET", "/"))
        assert scope["client"] == "None"
        assert scope["server"] == repr((os.fspath(path), None))
        proxied = scope_of(wire, request("GET", "/", ["X-Forwarded-For: 10.1.2.3"]))
        assert proxied["client"] == repr(("10.1.2.3", 0))


def test_the_path_begins_with_the_root_path(shared_serve: Serve) -> None:
    """Whether the proxy has cut it off or not; `raw_path` is as it was sent."""
    server = OURS["asyncio"].serve(shared_serve, APP, "--root-path", "/api")
    with server.connect() as wire:
        scope = scope_of(wire, request("GET", "/x"))
    assert (scope["path"], scope["root_path"], scope["raw_path"]) == ("'/api/x'", "'/api'", "b'/x'")
