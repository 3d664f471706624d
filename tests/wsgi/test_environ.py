"""The environ, key by key: by itself, and beside gunicorn's for the same request."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.server import GTHREAD, GUNICORN, STANCHION, Serve, Server
from support.wire import Wire, request


@pytest.fixture(scope="module")
def echo(shared_serve: Serve) -> Server:
    return shared_serve("echo:app")


def environ_of(wire: Wire, target: str, *headers: str) -> dict[str, Any]:
    response = wire.get(target, *headers)
    assert response.status == 200, response.body
    environ: dict[str, Any] = response.json()["environ"]
    return environ


def test_the_request_is_described_as_pep_3333_says(echo: Server) -> None:
    with echo.connect() as wire:
        here = wire.sock.getsockname()
        environ = environ_of(wire, "/a/path?x=1&y=%20")
    assert environ["REQUEST_METHOD"] == "GET"
    assert environ["SCRIPT_NAME"] == ""
    assert environ["PATH_INFO"] == "/a/path"
    assert environ["QUERY_STRING"] == "x=1&y=%20"
    assert environ["RAW_URI"] == "/a/path?x=1&y=%20"
    assert environ["SERVER_PROTOCOL"] == "HTTP/1.1"
    assert (environ["REMOTE_ADDR"], environ["REMOTE_PORT"]) == ("127.0.0.1", str(here[1]))
    assert (environ["SERVER_NAME"], environ["SERVER_PORT"]) == ("127.0.0.1", str(echo.address.port))
    assert environ["HTTP_HOST"] == "test"
    assert environ["wsgi.version"] == [1, 0]
    assert environ["wsgi.url_scheme"] == "http"
    assert environ["wsgi.run_once"] is False
    assert "CONTENT_LENGTH" not in environ
    assert "CONTENT_TYPE" not in environ


@pytest.mark.parametrize(
    ("arguments", "multithread", "multiprocess"),
    [([], False, False), (["-w", "2"], False, True), (["--threads", "2"], True, False)],
)
def test_the_flags_tell_how_the_app_is_run(
    serve: Serve, arguments: list[str], multithread: bool, multiprocess: bool
) -> None:
    server = serve("echo:app", *arguments)
    if server.kind is GTHREAD:
        pytest.skip("gthread always says multithread")
    with server.connect() as wire:
        environ = environ_of(wire, "/")
    assert (environ["wsgi.multithread"], environ["wsgi.multiprocess"]) == (multithread, multiprocess)


def test_bytes_of_the_path_become_latin_1_text(echo: Server) -> None:
    """PEP 3333, "Unicode Issues": each byte is the character of that number, whatever encoding the client meant."""
    with echo.connect() as wire:
        environ = environ_of(wire, "/caf%C3%A9/a%2Fb")
    assert environ["PATH_INFO"] == "/caf\u00c3\u00a9/a/b"
    assert environ["PATH_INFO"].encode("latin-1").decode() == "/café/a/b"
    assert environ["RAW_URI"] == "/caf%C3%A9/a%2Fb"


@pytest.mark.own("gunicorn keeps a fragment, and does not read a whole URI")
@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ("/a//b/../c;d?e?f", "/a//b/../c;d?e?f"),
        ("/a%2Fb?", "/a%2Fb?"),
        ("/a#b?c", "/a"),
        ("/a?b#c", "/a?b"),
        ("HTTP://Test:80/../a?b", "HTTP://Test:80/../a?b"),
        ("http://test", "http://test"),
        ("http://test?b", "http://test?b"),
    ],
)
def test_the_raw_target_is_what_was_sent_but_for_what_is_documented(echo: Server, sent: str, seen: str) -> None:
    with echo.connect() as wire:
        wire.send(request("OPTIONS", sent))
        assert wire.response().json()["environ"]["RAW_URI"] == seen


def test_bytes_of_header_values_pass_in_both_directions(shared_serve: Serve) -> None:
    server = shared_serve("answers:app")
    with server.connect() as wire:
        response = wire.get("/latin-1-header", "X-Sent: gr\u00fc\u00df \u00ff")
    assert response.header("X-Got") == "gr\u00fc\u00df \u00ff"
    assert response.header("X-Own") == "caf\u00e9 \u00ff"


def test_repeated_headers_are_joined_with_a_comma(echo: Server) -> None:
    with echo.connect() as wire:
        assert environ_of(wire, "/", "X-A: 1", "X-A: 2, 3", "x-a: 4")["HTTP_X_A"] == "1,2, 3,4"


def test_repeated_cookies_can_still_be_parsed(echo: Server) -> None:
    """RFC 9113 section 8.2.3 joins crumbs with "; "; gunicorn joins them with "," like the rest."""
    with echo.connect() as wire:
        assert environ_of(wire, "/", "Cookie: a=1", "Cookie: b=2")["HTTP_COOKIE"] in ("a=1; b=2", "a=1,b=2")


def test_a_header_with_an_underscore_cannot_pass_for_one_with_a_dash(echo: Server) -> None:
    with echo.connect() as wire:
        environ = environ_of(wire, "/", "X_Forwarded_For: 6.6.6.6", "X-Forwarded-For: 10.0.0.1")
    assert environ["HTTP_X_FORWARDED_FOR"] == "10.0.0.1"


def test_a_proxy_header_of_the_client_cannot_become_the_proxy_of_the_app(echo: Server) -> None:
    """The wound called httpoxy: HTTP_PROXY is taken for configuration by HTTP clients inside the app, in CGI only."""
    with echo.connect() as wire:
        assert environ_of(wire, "/", "Content_Length: 5", "Content-Type: text/x")["CONTENT_TYPE"] == "text/x"


def test_a_trusted_proxy_may_say_that_the_client_came_by_https(echo: Server) -> None:
    with echo.connect() as wire:
        assert environ_of(wire, "/", "X-Forwarded-Proto: https")["wsgi.url_scheme"] == "https"
        assert environ_of(wire, "/", "X-Forwarded-Proto: http")["wsgi.url_scheme"] == "http"
        assert environ_of(wire, "/")["wsgi.url_scheme"] == "http"


def test_other_clients_may_not(serve: Serve) -> None:
    server = serve("echo:app", "--forwarded-allow-ips", "10.9.8.7")
    with server.connect() as wire:
        assert environ_of(wire, "/", "X-Forwarded-Proto: https")["wsgi.url_scheme"] == "http"


def test_over_a_unix_socket_the_server_name_comes_from_host(serve: Serve, tmp_path: Path) -> None:
    server = serve("echo:app", bind=f"unix:{tmp_path}/s")
    with server.connect() as wire:
        wire.send(request("GET", "/", host="example.org:8080"))
        environ = wire.response().json()["environ"]
    assert (environ["SERVER_NAME"], environ["SERVER_PORT"]) == ("example.org", "8080")
    assert environ["REMOTE_ADDR"] == ""


def test_a_unix_socket_is_a_trusted_proxy(serve: Serve, tmp_path: Path) -> None:
    server = serve("echo:app", bind=f"unix:{tmp_path}/s")
    with server.connect() as wire:
        assert environ_of(wire, "/", "X-Forwarded-Proto: https")["wsgi.url_scheme"] == "https"


@pytest.mark.own("extras of stanchion")
def test_queue_wait_is_the_time_the_request_waited(serve: Serve, gate: Gate, clock: Clock, tmp_path: Path) -> None:
    counts = Counts(tmp_path / "ctl")
    deadlines = ("--timeout", "0", "--queue-timeout", "1000")
    server = serve("waiting:app", *deadlines, *counts.arguments, env=gate.environment | clock.environment)
    with server.connect() as first, server.connect() as second:
        first.send(request("GET", "/wait?first"))
        gate.announcement()
        sent_s = time.monotonic()
        second.send(request("GET", "/served?second"))
        eventually(lambda: counts.requests()["arrived"] == 2, "it waits")
        clock.advance(100)
        gate.let_pass(1)
        first.response()
        second.response()
        took_s = time.monotonic() - sent_s
        _, joined_s, started_s = gate.announcement().split()
    waited_s = float(started_s) - float(joined_s)
    assert 100 - ROUNDED_S <= waited_s <= 100 + took_s + ROUNDED_S


ROUNDED_S = 0.00001
"""The app answers times in microseconds."""


@pytest.mark.own("extras of stanchion")
def test_the_extras_are_of_the_promised_types(echo: Server) -> None:
    sent_s = time.monotonic()
    with echo.connect() as wire:
        got = wire.get("/").json()
    assert got["types"]["stanchion.queue_wait"] == "float"
    assert 0 <= got["environ"]["stanchion.queue_wait"] <= time.monotonic() - sent_s
    assert got["environ"]["stanchion.client_gone"] == "callable"
    assert got["environ"]["stanchion.extend_deadline"] == "callable"


DIFFERENCES_ALLOWED = {
    "SERVER_SOFTWARE": "each names itself",
    "SERVER_PORT": "each has its own port",
    "REMOTE_PORT": "each connection has its own port",
    "gunicorn.socket": "stanchion's workers touch no socket of a client",
    "wsgi.early_hints": "an extra of gunicorn",
    "stanchion.queue_wait": "an extra of stanchion",
    "stanchion.client_gone": "an extra of stanchion",
    "stanchion.extend_deadline": "an extra of stanchion",
    "stanchion.request_id": "an extra of stanchion",
    "HTTP_X_REQUEST_ID": "stanchion gives every request a name",
    "HTTP_X_REQUEST_START": "and says when it joined the line",
}
DIFFERENCES_ALLOWED_WHEN_CHUNKED = {
    "CONTENT_LENGTH": "stanchion has read the body whole, so it knows; apps that look for a length find one",
    "HTTP_TRANSFER_ENCODING": "and the coding is gone with it (RFC 9112 section 7.1.3)",
}

REQUESTS = {
    "plain": request("GET", "/"),
    "http 1.0": request("GET", "/", version="1.0", host=None),
    "path and query": request("GET", "/a%20b/%C3%A9%2F//c?x=%20&y=1?z"),
    "headers": request("GET", "/", ["Accept: */*", "Accept: text/html", "User-Agent: u", "Referer: r", "X-Empty:"]),
    "latin-1": request("GET", "/", ["X-A: \u00e9\u00ff"]),
    "cookies": request("GET", "/", ["Cookie: a=1; b=2"]),
    "authorization": request("GET", "/", ["Authorization: Basic dTpw"]),
    "underscore": request("GET", "/", ["X_A: 1", "X-B_C: 2"]),
    "body by length": request("POST", "/", ["Content-Type: text/plain; charset=utf-8"], b"hello"),
    "chunked body": request("POST", "/", ["Transfer-Encoding: chunked"]) + b"5\r\nhello\r\n0\r\n\r\n",
    "no body": request("POST", "/", ["Content-Length: 0"]),
    "https by proxy": request("GET", "/", ["X-Forwarded-Proto: https", "X-Forwarded-For: 10.0.0.1"]),
    "host with port": request("GET", "/", host="example.org:81"),
    "absolute form": request("GET", "http://test/x?y"),
    "options asterisk": request("OPTIONS", "*"),
    "expect": request("POST", "/", ["Connection: close", "X-A: 1"], b"x"),
}


@pytest.fixture(scope="module", params=["tcp", "unix"])
def pair(request: pytest.FixtureRequest, shared_serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> list[Server]:
    """Stanchion and gunicorn with the same app, over the same kind of socket."""
    home = tmp_path_factory.mktemp("sockets")
    return [
        shared_serve(
            "echo:raw", kind=kind, bind="127.0.0.1:0" if request.param == "tcp" else f"unix:{home}/{kind.name}"
        )
        for kind in (STANCHION, GUNICORN)
    ]


@pytest.mark.own("this is the comparison with the peer")
@pytest.mark.parametrize("name", REQUESTS)
def test_the_environ_is_gunicorns_but_for_a_written_list(pair: list[Server], name: str) -> None:
    environs = []
    for server in pair:
        with server.connect() as wire:
            wire.send(REQUESTS[name])
            response = wire.response()
            assert response.status == 200, response.body
            answer = response.json()
            assert answer["length"] in (0, 1, 5)
            environ = answer["environ"]
            # Over a unix socket and without Host the name is the path, and each has its own.
            environ["SERVER_NAME"] = environ["SERVER_NAME"].replace(server.address.path or "\0", "PATH")
            environs.append(environ)
    ours, theirs = environs
    allowed = DIFFERENCES_ALLOWED | (DIFFERENCES_ALLOWED_WHEN_CHUNKED if name == "chunked body" else {})
    differing = {
        key: (ours.get(key, "absent"), theirs.get(key, "absent"))
        for key in ours.keys() | theirs.keys()
        if key not in allowed and ours.get(key) != theirs.get(key)
    }
    assert not differing, "key: (stanchion's, gunicorn's)"
    assert re.fullmatch(r"stanchion/\d+\.\d+.*", ours["SERVER_SOFTWARE"])
