"""A proxy's fields of a request: the server believes only listed proxies, and only fields with one meaning."""

from pathlib import Path
from typing import Any

import pytest

from support.server import GUNICORN, STANCHION, Serve, Server
from support.wire import Response, request

PROTO, PROTOCOL, SSL = "X-Forwarded-Proto", "X-Forwarded-Protocol", "X-Forwarded-Ssl"
SAID = {
    "nothing": [],
    "https": [f"{PROTO}: https"],
    "http": [f"{PROTO}: http"],
    "ssl": [f"{PROTOCOL}: ssl"],
    "on": [f"{SSL}: on"],
    "off": [f"{SSL}: off"],
    "a list": [f"{PROTO}: https, http"],
    "nothing said": [f"{PROTO}:"],
    "three agree": [f"{PROTO}: https", f"{PROTOCOL}: ssl", f"{SSL}: on"],
    "two differ": [f"{PROTO}: https", f"{SSL}: off"],
    "two differ, the other way round": [f"{SSL}: on", f"{PROTO}: http"],
    "twice the same": [f"{PROTO}: https", f"{PROTO}: https"],
    "the client's before the proxy's": [f"{PROTO}: https", f"{PROTO}: http"],
    "the client's behind the proxy's": [f"{PROTO}: http", f"{PROTO}: https"],
    "the second of three": [f"{SSL}: on", f"{SSL}: off", f"{SSL}: on"],
}
IN_GATE = ("https", "two differ")
"""crates/stanchion-http/tests/forwarded.rs has all; that gunicorn agrees, the night shows."""


def told(server: Server, *fields: str) -> Response:
    with server.connect() as wire:
        wire.send(request("GET", "/", fields))
        return wire.response()


def environ(server: Server, *fields: str) -> dict[str, Any]:
    answer = told(server, *fields).json()["environ"]
    assert isinstance(answer, dict)
    return answer


@pytest.fixture(scope="module")
def pair(shared_serve: Serve) -> list[Server]:
    return [shared_serve("echo:raw", kind=kind) for kind in (STANCHION, GUNICORN)]


@pytest.mark.own("this is the comparison with the peer")
@pytest.mark.parametrize(
    "said", [said if said in IN_GATE else pytest.param(said, marks=pytest.mark.large) for said in SAID]
)
def test_the_scheme_is_what_it_is_for_gunicorn_and_refused_where_gunicorn_refuses(
    pair: list[Server], said: str
) -> None:
    seen = []
    for server in pair:
        response = told(server, *SAID[said])
        seen.append((response.status, response.status == 200 and response.json()["environ"]["wsgi.url_scheme"]))
    ours, theirs = seen
    assert ours == theirs
    assert ours in ((200, "http"), (200, "https"), (400, False))


@pytest.mark.own("gunicorn always believes who comes by a unix socket")
class TestUnix:
    SPOOFED = (
        "X-Forwarded-Proto: https",
        "X-Request-Id: chosen",
        "X-Request-Start: t=1",
        "SCRIPT_NAME: /mounted",
    )

    @pytest.mark.parametrize("believed", ["127.0.0.1,::1", ""])
    def test_a_list_without_unix_believes_no_peer_on_a_unix_socket(
        self, serve: Serve, tmp_path: Path, believed: str
    ) -> None:
        server = serve("echo:raw", "--forwarded-allow-ips", believed, bind=f"unix:{tmp_path}/s")
        seen = environ(server, *self.SPOOFED)
        assert (seen["wsgi.url_scheme"], seen["SCRIPT_NAME"]) == ("http", "")
        assert seen["stanchion.request_id"] != "chosen"
        assert "stanchion.proxy_wait" not in seen
        server.log.wait(r"peers on unix:.*/s are not trusted, so their X-Forwarded-Proto .* does not list unix")

    @pytest.mark.parametrize("believed", ["unix", "*"])
    def test_a_list_with_unix_does(self, serve: Serve, tmp_path: Path, believed: str) -> None:
        server = serve("echo:raw", "--forwarded-allow-ips", believed, bind=f"unix:{tmp_path}/s")
        seen = environ(server, *self.SPOOFED)
        assert (seen["wsgi.url_scheme"], seen["stanchion.request_id"]) == ("https", "chosen")
        assert "are not trusted" not in server.log.text()

    def test_it_does_not_help_who_comes_by_tcp(self, serve: Serve) -> None:
        server = serve("echo:raw", "--forwarded-allow-ips", "unix")
        assert environ(server, *self.SPOOFED)["wsgi.url_scheme"] == "http"


@pytest.mark.own("gunicorn names no requests")
def test_of_two_ids_or_moments_neither_is_believed(serve: Serve) -> None:
    """A proxy that adds its own to the client's leaves both; which one is the proxy's is unknown."""
    server = serve("echo:raw")
    with server.connect() as wire:
        once = wire.get("/", "X-Request-Id: one", "X-Request-Start: t=1").json()["environ"]
        assert once["stanchion.request_id"] == once["HTTP_X_REQUEST_ID"] == "one"
        twice = wire.get("/", "X-Request-Id: one", "X-Request-Id: two").json()["environ"]
    assert len(twice["stanchion.request_id"]) == 32
    assert twice["HTTP_X_REQUEST_ID"] == twice["stanchion.request_id"], "and the app sees neither"


@pytest.mark.own("gunicorn does not read Forwarded")
class TestForwarded:
    """RFC 7239, in place of the X-Forwarded family."""

    CHAIN = "Forwarded: for=203.0.113.9, for=198.51.100.7;proto=https"
    OTHERS = ("X-Forwarded-For: 192.0.2.9", "X-Forwarded-Proto: http", "X-Forwarded-Ssl: on")
    FORMAT = ("--access-logfile", "-", "--access-logformat", "%({client}x)s!")

    def test_it_says_who_the_client_is_and_no_other_field_does(self, serve: Serve) -> None:
        server = serve("echo:raw", "--forwarded-header", "forwarded", *self.FORMAT)
        assert environ(server, self.CHAIN, *self.OTHERS)["wsgi.url_scheme"] == "https"
        assert server.stdout.wait(r"^(\S+)!")[1] == "198.51.100.7"
        assert environ(server, "X-Forwarded-Proto: https")["wsgi.url_scheme"] == "http"
        assert [found[1] for found in server.stdout.matches(r"(?m)^(\S+)!$")] in (
            ["198.51.100.7"],
            ["198.51.100.7", "127.0.0.1"],
        )

    def test_by_default_it_says_nothing(self, serve: Serve) -> None:
        """A proxy that sets the others passes on what a client writes there."""
        server = serve("echo:raw", *self.FORMAT)
        assert environ(server, self.CHAIN, "X-Forwarded-For: 192.0.2.9")["wsgi.url_scheme"] == "http"
        assert server.stdout.wait(r"^(\S+)!")[1] == "192.0.2.9"
        assert told(server, 'Forwarded: for="').status == 200

    def test_only_from_proxies_that_are_listed(self, serve: Serve) -> None:
        server = serve(
            "echo:raw", "--forwarded-header", "forwarded", "--forwarded-allow-ips", "192.0.2.1", *self.FORMAT
        )
        assert environ(server, self.CHAIN)["wsgi.url_scheme"] == "http"
        assert server.stdout.wait(r"^(\S+)!")[1] == "127.0.0.1"
        assert told(server, 'Forwarded: for="').status == 200, "and nobody reads it"

    def test_one_that_cannot_be_read_is_refused(self, serve: Serve) -> None:
        server = serve("echo:raw", "--forwarded-header", "forwarded")
        answer = told(server, 'Forwarded: for=192.0.2.1;x=", for=127.0.0.9')
        assert (answer.status, answer.text) == (400, "400 Bad Request: the Forwarded header is malformed\n")
        server.log.wait("the Forwarded header is malformed")
