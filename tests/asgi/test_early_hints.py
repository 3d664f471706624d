"""Early hints (RFC 8297) of an ASGI app: the extension `http.response.early_hint`."""

import pytest

from asgi.conftest import ServeAsgi
from support.clock import Clock
from support.gate import Gate
from support.server import UNHURRIED, Serve, Server
from support.websocket import HANDSHAKE, Ask
from support.wire import Headers, Wire, request

pytestmark = pytest.mark.own("uvicorn has no early hints")

HINTS = "--early-hints"
CSS, OTHER = ("Link", "</a.css>"), ("Link", "</b.css>")


def links(wire: Wire) -> list[Headers]:
    """The hints that come before the next answer, whose head is left."""
    came = []
    while (response := wire.head()).status == 103:
        came.append([(name.title(), value) for name, value in response.headers])
    assert response.status == 200
    wire.read_body(response)
    came.append([("raised", response.text)])
    return came


KINDS: dict[str, list[Headers]] = {
    "one": [[("Link", "</a.css>; rel=preload")], [("raised", "ok")]],
    "two": [[CSS], [OTHER], [("raised", "ok")]],
    "a field in a value": [[("raised", "Va")]],
}


@pytest.fixture(scope="module")
def server(shared_serve: Serve) -> Server:
    return shared_serve("fields:hints_asgi", "--interface", "asgi", "--lifespan", "off", HINTS)


@pytest.mark.parametrize("kind_of_hint", KINDS)
def test_each_kind_of_message(server: Server, kind_of_hint: str) -> None:
    with server.connect() as wire:
        wire.send(request("GET", f"/kinds/{kind_of_hint}".replace(" ", "%20")))
        assert links(wire) == KINDS[kind_of_hint]


def test_the_scope_names_the_extension_only_where_it_works(serve: Serve, gate: Gate, asked: Ask) -> None:
    with_hints = serve("fields:hints_asgi", "--interface", "asgi", HINTS, "--pathsend", env=gate.environment)
    without = serve("fields:hints_asgi", "--interface", "asgi", "--pathsend")
    both = "['http.response.early_hint', 'http.response.pathsend', 'stanchion']"
    one = "['http.response.pathsend', 'stanchion']"
    for server, version, expected in (
        (with_hints, "1.1", both),
        (with_hints, "1.0", one),
        (with_hints, "1.1", both),
        (without, "1.1", one),
    ):
        with server.connect() as wire:
            assert wire.get("/scope", version=version).text == expected
            wire.close()
        with server.connect() as wire:
            wire.send(request("GET", "/kinds/two", version=version))
            assert len(links(wire)) == (3 if expected == both else 1)
    assert asked(with_hints, **HANDSHAKE).status == 403
    assert gate.announcement() == "['stanchion', 'websocket.http.response']"


def test_nothing_goes_ahead_of_the_answer_to_head(server: Server) -> None:
    with server.connect() as wire:
        assert wire.ask("HEAD", "/kinds/two").header("X-Raised") == "RuntimeError"
        assert wire.get("/kinds/nothing").text == "ok"


def test_a_message_of_the_extension_that_the_scope_does_not_name_raises(serve: Serve) -> None:
    server = serve("fields:hints_asgi", "--interface", "asgi")
    with server.connect() as wire:
        wire.send(request("GET", "/kinds/one"))
        assert links(wire) == [[("raised", "Ru")]]


def test_hints_are_there_before_the_app_goes_on(serve_asgi: ServeAsgi, gate: Gate) -> None:
    server = serve_asgi("fields:hints_asgi", "--lifespan", "off", HINTS, env=gate.environment)
    with server.connect() as one, server.connect() as other:
        for wire in (one, other):
            wire.send(request("GET", "/hold"))
            assert wire.head().headers == [("link", "</a.css>")]
        gate.announcements(2)
        gate.let_pass(2)
        for wire in (one, other):
            assert wire.response().text == "ok"


def test_hints_are_no_answer_for_the_timeout(serve: Serve, gate: Gate, clock: Clock) -> None:
    deadline = ("--timeout", "100", "--loop-timeout", "0")
    server = serve(
        "fields:hints_asgi", "--interface", "asgi", HINTS, *deadline, env=gate.environment | clock.environment
    )
    with server.connect() as wire:
        wire.send(request("GET", "/overdue"))
        assert wire.head().status == 103
        assert gate.announcement() == "http.request"
        clock.advance(101)
        assert wire.response().status == 504
        assert gate.announcement() == "http.disconnect"


def test_hints_go_out_while_the_body_comes_and_behind_100(serve: Serve, gate: Gate) -> None:
    server = serve("fields:hints_asgi", "--interface", "asgi", HINTS, *UNHURRIED, env=gate.environment)
    with server.connect() as wire:
        wire.send(request("POST", "/upload", ["Expect: 100-continue", "Content-Length: 8"]))
        assert wire.head().status == 100
        for number in range(0, 8, 4):
            # The app is called with the first part when no more has come for a while.
            wire.send(b"four")
            response = wire.head()
            assert (response.status, response.headers) == (103, [("link", str(number))])
            assert gate.announcement() == str(number + 4)
        assert wire.response().text == "ok"
        assert wire.get("/kinds/nothing").text == "ok"


def test_more_than_may_go_ahead_of_an_answer_are_dropped_and_logged(serve: Serve) -> None:
    server = serve("fields:hints_asgi", "--interface", "asgi", HINTS)
    with server.connect() as wire:
        for count in (15, 40, 1):
            wire.send(request("GET", f"/long/{count}"))
            assert len(links(wire)) == 1 + min(count, 15)
    server.log.only("an early hint of the app is dropped at GET /long/40 ")


def test_starlette_has_a_method_for_them(serve: Serve) -> None:
    """Through a BaseHTTPMiddleware, and with an answer that is compressed."""
    for arguments, count in (((HINTS,), 1), ((), 0)):
        server = serve("frameworks.starlette:hinting", "--interface", "asgi", *arguments)
        with server.connect() as wire:
            wire.send(request("GET", "/", ["Accept-Encoding: gzip"]))
            for _ in range(count):
                hint = wire.head()
                assert (hint.status, hint.all("Link")) == (
                    103,
                    ["</a.css>; rel=preload; as=style", "</b.js>; rel=preload; as=script"],
                )
            response = wire.response()
            assert (response.status, response.header("Content-Encoding")) == (200, "gzip")
