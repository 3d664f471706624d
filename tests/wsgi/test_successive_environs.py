"""A worker keeps what it can of one environ for the next: the app must still see each difference."""

from typing import Any

import pytest

from support.server import Serve, Server
from support.wire import Wire, request

MANY = 300
"""Names of fields, more than a worker remembers."""
LONG = 300
"""The length of a value that a worker does not keep."""


@pytest.fixture(scope="module")
def echo(shared_serve: Serve) -> Server:
    return shared_serve("echo:app")


def environ_of(wire: Wire, method: str, target: str, *fields: str, host: str = "test") -> dict[str, Any]:
    wire.send(request(method, target, list(fields), host=host))
    response = wire.response()
    assert response.status == 200, response.body
    environ: dict[str, Any] = response.json()["environ"]
    return environ


def test_each_environ_is_of_its_own_request(echo: Server) -> None:
    with echo.connect() as wire:
        for method, path, query, host, agent in [
            ("GET", "/aa", "x=1", "one.test", "agent-1"),
            ("GET", "/aa", "x=2", "two.test", "agent-2"),
            ("PUT", "/bb", "x=2", "one.test", "agent-1"),
            ("GET", "/bb", "x=1", "two.test", "agent-2"),
            ("GET", "/%62b", "x=1", "two.test", "agent-1"),
        ]:
            environ = environ_of(wire, method, f"{path}?{query}", f"User-Agent: {agent}", host=host)
            assert environ["REQUEST_METHOD"] == method
            assert (environ["PATH_INFO"], environ["QUERY_STRING"]) == (path.replace("%62", "b"), query)
            assert environ["RAW_URI"] == f"{path}?{query}"
            assert (environ["HTTP_HOST"], environ["HTTP_USER_AGENT"]) == (host, agent)


def test_a_field_of_one_request_is_not_in_the_next(echo: Server) -> None:
    with echo.connect() as wire:
        first = environ_of(wire, "GET", "/", "X-A: 1", "Accept: text/html", "X-Forwarded-Proto: https")
        second = environ_of(wire, "GET", "/")
    assert (first["HTTP_X_A"], first["HTTP_ACCEPT"], first["wsgi.url_scheme"]) == ("1", "text/html", "https")
    assert not {"HTTP_X_A", "HTTP_ACCEPT"} & second.keys()
    assert second["wsgi.url_scheme"] == "http"


def test_each_connection_has_its_own_port(echo: Server) -> None:
    wires = [echo.connect() for _ in range(8)]
    try:
        for wire in wires * 2:
            port = wire.sock.getsockname()[1]
            assert environ_of(wire, "GET", "/")["REMOTE_PORT"] == str(port)
    finally:
        for wire in wires:
            wire.sock.close()


def test_a_mount_of_one_request_is_not_that_of_the_next(echo: Server) -> None:
    with echo.connect() as wire:
        first = environ_of(wire, "GET", "/app/x", "SCRIPT_NAME: /app")
        second = environ_of(wire, "GET", "/app/x")
    assert (first["SCRIPT_NAME"], first["PATH_INFO"]) == ("/app", "/x")
    assert (second["SCRIPT_NAME"], second["PATH_INFO"]) == ("", "/app/x")


def fields_of(environ: dict[str, Any]) -> dict[str, str]:
    of_server = {"HTTP_HOST", "HTTP_X_REQUEST_ID", "HTTP_X_REQUEST_START"}
    return {key: value for key, value in environ.items() if key.startswith("HTTP_") and key not in of_server}


KINDS = [
    *(["Accept"], ["accept"], ["Accept", "X-A"], ["X-A", "Accept"], ["X-B", "Accept"], ["X-A", "Accept", "X-B"]),
    *([], ["X-A"], ["X-B"], ["X-B", "X-A"]),
]
"""Field names that clients of several kinds send: more kinds than a worker has templates."""


@pytest.mark.parametrize("kinds", [3, len(KINDS)])
@pytest.mark.parametrize("times", [1, 3])
def test_clients_of_many_kinds_in_turn(echo: Server, times: int, kinds: int) -> None:
    with echo.connect() as wire:
        for number in range(12 * kinds):
            names = KINDS[number // times % kinds]
            values = {name: f"{name} {number // 2}" for name in names}
            environ = environ_of(wire, "GET", "/", *(f"{name}: {value}" for name, value in values.items()))
            expected = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in values.items()}
            assert fields_of(environ) == expected


WAYS = ["file", "lines", "text", "close", "write", "seek", "with", "next", "set", "copy", "kind", "unknown"]
"""Actions of an app with an input."""


def test_an_input_without_a_body_is_as_good_as_new_each_time(shared_serve: Serve) -> None:
    with shared_serve("echo:empty_input").connect() as wire:
        for way in WAYS * 2:
            response = wire.get(f"/{way}")
            assert (response.status, response.body) == (200, b"as it should be"), way


def retained(wire: Wire, target: str, *fields: str) -> dict[str, Any]:
    response = wire.get(target, *fields)
    assert response.status == 200, response.body
    answer: dict[str, Any] = response.json()
    return answer


def test_only_names_that_are_remembered_are_interned(serve: Serve) -> None:
    """Interned strings may live for ever, so a client must not make as many as it likes."""
    with serve("keeping:retained").connect() as wire:
        assert "HTTP_X_EARLY" in retained(wire, "/", "X-Early: 1")["interned"]
        for start in range(0, MANY, 50):
            retained(wire, "/", *(f"X-{number}: 1" for number in range(start, start + 50)))
        answer = retained(wire, "/", "X-Early: 1", "X-Late: 2")
        assert (answer["environ"]["HTTP_X_EARLY"], answer["environ"]["HTTP_X_LATE"]) == ("1", "2")
        assert {"HTTP_X_EARLY", "HTTP_X_LATE"} & set(answer["interned"]) == {"HTTP_X_EARLY"}


def test_long_names_are_not_kept(shared_serve: Serve) -> None:
    short, long = "X-" + "a" * 62, "X-" + "b" * 63
    with shared_serve("keeping:retained").connect() as wire:
        for name, is_kept in [(short, True), (long, False)] * 3:
            key = f"HTTP_{name.upper().replace('-', '_')}"
            answers = [retained(wire, "/", f"{name}: 1") for _ in range(3)]
            assert [answer["environ"][key] for answer in answers] == ["1"] * 3
            assert (key in answers[-1]["kept"], key in answers[-1]["interned"]) == (is_kept, is_kept)


def test_long_values_are_in_their_own_environ_only(shared_serve: Serve) -> None:
    with shared_serve("keeping:retained").connect() as wire:
        for path, agent in [("/a", "one"), ("/a", "u" * LONG), ("/" + "b" * LONG, "one"), ("/a", "two")] * 3:
            answer = retained(wire, path, f"User-Agent: {agent}")
            environ = answer["environ"]
            assert (environ["RAW_URI"], environ["PATH_INFO"]) == (path, path)
            assert environ["HTTP_USER_AGENT"] == agent
            assert max(map(len, answer["kept"])) < LONG
        assert {"/a", "two"} <= set(answer["kept"])


def test_queries_are_in_their_own_environ_only(shared_serve: Serve) -> None:
    """They may hold tokens."""
    with shared_serve("keeping:retained").connect() as wire:
        for path, query in [("/a", ""), ("/b", "token=secret"), ("/a", ""), ("/a", "token=secret")] * 3:
            target = f"{path}?{query}" if query else path
            answer = retained(wire, target)
            environ = answer["environ"]
            assert (environ["RAW_URI"], environ["PATH_INFO"], environ["QUERY_STRING"]) == (target, path, query)
            assert path in answer["kept"]
            assert not [text for text in answer["kept"] if "secret" in text]
