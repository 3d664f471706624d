"""WebSockets: what the app and its client get, and how each session ends in one counted way."""

import os
import signal

import pytest
from wsproto.events import Ping

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.websocket import HANDSHAKE, Ask, Open, seen, sessions
from support.wire import request


@pytest.fixture
def server(serve: Serve, counts: Counts) -> Server:
    return serve("sockets:app", "--interface", "asgi", *counts.arguments)


@pytest.fixture(scope="module")
def shared(shared_serve: Serve) -> Server:
    return shared_serve("sockets:app", "--interface", "asgi")


def test_messages_of_all_sizes_come_back_as_they_went(server: Server, opens: Open) -> None:
    client = opens(server, subprotocols=("chat", "better"))
    assert (client.status, client.subprotocol) == (101, "better")
    assert client.headers[b"x-app"] == b"sockets"
    for text in ("", "héllo 𝄞", "x" * 300_000):
        client.text(text)
        assert client.hear() == text
    for data in (b"", b"\x00\xff", os.urandom(3_000_000)):
        client.bytes(data)
        assert client.hear() == data
    client.say(Ping(b"there?"))
    assert client.hear() == ("pong", b"there?")
    client.close()
    assert client.until_end() == [(1000, "")]
    connect = ["websocket.connect", "ws", ["chat", "better"], ["stanchion", "websocket.http.response"]]
    eventually(lambda: seen(server) == [connect, [1000, "", "OSError"]], "the app is told")


@pytest.mark.parametrize(
    ("told", "close"),
    [("close", (4001, "as asked")), ("return", (1000, "")), ("raise", (1011, ""))],
)
def test_a_session_that_the_app_ends(
    server: Server, counts: Counts, told: str, close: tuple[int, str], opens: Open
) -> None:
    client = opens(server)
    client.text(told)
    assert client.until_end() == [close]
    eventually(lambda: sessions(counts) == {"begun": 1, "closed_by_app": 1}, "it is counted")
    assert counts.requests()["answered"] == 1


def test_a_session_that_the_client_ends_with_a_code_and_a_reason(server: Server, counts: Counts, opens: Open) -> None:
    client = opens(server)
    client.close(4002, "enough")
    assert client.until_end() == [(4002, "enough")]
    eventually(lambda: sessions(counts) == {"begun": 1, "closed_by_client": 1}, "it is counted")
    eventually(lambda: seen(server)[-1] == [4002, "enough", "OSError"], "the app is told")


def test_a_client_that_goes_without_a_word_is_1006_to_the_app(server: Server, counts: Counts, opens: Open) -> None:
    opens(server).drop()
    eventually(lambda: sessions(counts) == {"begun": 1, "cut": 1}, "it is counted")
    eventually(lambda: seen(server)[-1] == [1006, "", "OSError"], "the app is told")
    assert counts.requests()["abandoned_answering"] == 1


def test_an_app_may_refuse_with_403_or_an_answer_of_its_own(server: Server, counts: Counts, opens: Open) -> None:
    denied = opens(server, "/deny")
    assert denied.status == 403
    teapot = opens(server, "/teapot")
    assert (teapot.status, teapot.body, teapot.headers[b"x-kind"]) == (418, b"short and stout", b"pot")
    failed = opens(server, "/fail")
    assert failed.status == 500
    eventually(lambda: counts.requests()["answered"] == 3, "they are counted")
    assert sessions(counts) == {}


def test_an_app_that_has_refused_hears_the_end_and_frees_its_seat(serve: Serve, opens: Open) -> None:
    server = serve("sockets:app", "--interface", "asgi", "--worker-concurrency", "1")
    for _ in range(3):
        assert opens(server, "/deny-and-listen").status == 403
        assert seen(server)[-1] == ["websocket.disconnect", 1006]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"Sec-WebSocket-Version": "8"}, 426),
        ({"Sec-WebSocket-Key": "dG9vIHNob3J0"}, 400),
        ({}, 101),
    ],
)
def test_a_handshake_that_is_none_is_refused(shared: Server, fields: dict[str, str], status: int, asked: Ask) -> None:
    answer = asked(shared, **{**HANDSHAKE, **fields})
    assert answer.status == status
    if status == 426:
        assert (answer.header("Sec-WebSocket-Version"), answer.header("Upgrade")) == ("13", "websocket")
    if status == 101:
        assert answer.header("Sec-WebSocket-Accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert answer.header("Sec-WebSocket-Extensions") is None


def test_the_client_is_told_what_it_does_wrong(serve: Serve, counts: Counts, opens: Open) -> None:
    server = serve("sockets:app", "--interface", "asgi", "--ws-max-size", "1000", *counts.arguments)
    for frame, code in [
        (b"\x81\x01x", 1002),
        (b"\x81\x82\x00\x00\x00\x00\xc3\x28", 1007),
        (b"\x82\xfe\x03\xe9mask", 1009),
    ]:
        client = opens(server)
        client.wire.send(frame)
        (heard, _), *rest = client.until_end()
        assert (heard, rest) == (code, [])
        eventually(lambda code=code: seen(server)[-1][0] == code, "the app is told")
    eventually(lambda: sessions(counts) == {"begun": 3, "closed_by_server": 3}, "they are counted")


def test_a_session_gives_its_seat_back(serve: Serve, opens: Open) -> None:
    server = serve("sockets:app", "--interface", "asgi", "--worker-concurrency", "1")
    clients = [opens(server, "/deaf") for _ in range(5)]
    assert len(seen(server)) == len(clients)


def test_there_are_no_more_sessions_than_worker_sessions(serve: Serve, counts: Counts, opens: Open, asked: Ask) -> None:
    server = serve("sockets:app", "--interface", "asgi", "--worker-sessions", "2", *counts.arguments)
    first, second = opens(server), opens(server)
    answer = asked(server, **HANDSHAKE)
    assert (answer.status, answer.header("Retry-After")) == (503, "1")
    assert counts.requests()["refused_sessions_full"] == 1
    first.close()
    assert first.until_end() == [(1000, "")]
    eventually(lambda: asked(server, **HANDSHAKE).status == 101, "there is room again")
    second.text("still here")
    assert second.hear() == "still here"


def test_the_clients_of_a_killed_worker_are_told_1011(serve: Serve, counts: Counts, opens: Open) -> None:
    server = serve("sockets:app", "--interface", "asgi", "-w", "1", *counts.arguments)
    clients = [opens(server) for _ in range(3)]
    clients[0].text("die")
    for client in clients:
        (code, _), *rest = client.until_end()
        assert (code, rest) == (1011, [])
    eventually(lambda: sessions(counts) == {"begun": 3, "closed_by_server": 3}, "they are counted")
    assert counts.requests()["broken_off"] == 3


@pytest.mark.parametrize("how", ["HUP", "TERM"])
def test_sessions_are_closed_by_1012_when_their_generation_leaves(
    serve: Serve, counts: Counts, how: str, opens: Open
) -> None:
    server = serve("sockets:app", "--interface", "asgi", "--session-grace", "0.5", *counts.arguments)
    clients = [opens(server) for _ in range(3)]
    server.signal(signal.SIGHUP if how == "HUP" else signal.SIGTERM)
    for client in clients:
        (code, _), *rest = client.until_end()
        assert (code, rest) == (1012, [])
    if how == "HUP":
        server.log.wait("reloaded: generation 2 serves")
        after = opens(server)
        after.text("again")
        assert after.hear() == "again"
    else:
        assert server.exit_code() == 0


def test_a_slow_reader_holds_the_app_and_loses_nothing(serve: Serve, opens: Open) -> None:
    server = serve("sockets:app", "--interface", "asgi", "--ws-ping-interval", "0")
    client = opens(server)
    client.text("flood")
    # More than socket and ring hold together, of 40 MB: so the app waits.
    eventually(lambda: (sent := seen(server)) and sent[-1][0] == "sent", "it has begun")
    for number in range(400):
        assert client.hear() == number.to_bytes(4, "big") * 25_000
    client.close()
    assert client.until_end() == [(1000, "")]


def test_a_client_that_answers_no_ping_is_closed(serve: Serve, clock: Clock, opens: Open) -> None:
    pings = ("--ws-ping-interval", "100", "--ws-ping-timeout", "100", "--loop-timeout", "0")
    server = serve("sockets:app", "--interface", "asgi", *pings, env=clock.environment)
    there, gone = opens(server), opens(server)
    gone.answers_pings = False
    for _ in range(2):
        clock.advance(101)
        assert there.hear() == ("ping", b"")
        # Behind its answer.
        there.text("here")
        assert there.hear() == "here"
    assert gone.until_end() == [("ping", b""), (1011, "a ping was not answered")]


def test_an_access_log_line_comes_at_the_end_of_a_session(serve: Serve, opens: Open) -> None:
    server = serve("sockets:app", "--interface", "asgi", "--access-logfile", "-")
    client = opens(server, "/path")
    client.text("four")
    assert client.hear() == "four"
    assert '"GET /path' not in server.stdout.text()
    client.close()
    assert client.until_end() == [(1000, "")]
    server.stdout.wait(r'"GET /path HTTP/1\.1" 101 6 ')


def test_what_a_socket_has_in_its_context_is_not_for_the_request_that_gets_its_seat(
    serve: Serve, counts: Counts, gate: Gate
) -> None:
    arguments = ("--interface", "asgi", "--lifespan", "off", "--worker-concurrency", "1", *counts.arguments)
    server = serve("asgi_cases:socket", *arguments, env=gate.environment)
    with server.connect() as opening, server.connect() as waiting:
        opening.send(request("GET", "/", [f"{name}: {value}" for name, value in HANDSHAKE.items()]))
        assert gate.announcement() == "asked"
        waiting.send(request("GET", "/context"))
        eventually(lambda: counts.requests()["arrived"] == 2, "it waits for the seat")
        gate.let_pass(1)
        assert waiting.response().json() == [0, 1, True]
