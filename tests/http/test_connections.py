"""How long a connection lives, and that the requests on it are answered one by one and in order."""

import time

import pytest

from support.gate import Gate
from support.server import Serve, Server
from support.wire import Wire, request


@pytest.fixture(scope="module")
def hello(shared_serve: Serve) -> Server:
    return shared_serve("hello:app", "--keep-alive", "30")


@pytest.mark.privileges
def test_an_http_1_1_connection_stays_open_for_the_next_request(hello: Server) -> None:
    with hello.connect() as wire:
        for _ in range(3):
            response = wire.get("/")
            assert (response.version, response.status, response.body) == ("HTTP/1.1", 200, b"hello\n")
            assert not response.closes()


def test_connection_close_is_obeyed(hello: Server) -> None:
    with hello.connect() as wire:
        assert wire.get("/", "Connection: close").closes()
        assert wire.closed()


@pytest.mark.own("gunicorn looks for the one word only")
def test_connection_close_is_found_among_other_options_and_in_any_case(hello: Server) -> None:
    with hello.connect() as wire:
        assert wire.get("/", "Connection: TE, ClOsE", "TE: trailers").closes()
        assert wire.closed()


def test_an_http_1_0_connection_closes_after_its_response(hello: Server) -> None:
    with hello.connect() as wire:
        assert wire.get("/", version="1.0").body == b"hello\n"
        assert wire.closed()


def test_an_http_1_0_client_may_ask_to_keep_the_connection(hello: Server) -> None:
    with hello.connect() as wire:
        for _ in range(2):
            response = wire.get("/", "Connection: keep-alive", version="1.0")
            assert response.body == b"hello\n"
            # RFC 9112 appendix C.2.2: the server has to say so, or an HTTP/1.0 client would wait for the end.
            assert (response.header("Connection") or "").lower() == "keep-alive"


def test_an_http_1_0_response_without_a_length_ends_with_the_connection_even_if_kept_alive_was_asked(
    serve: Serve,
) -> None:
    server = serve("answers:app")
    with server.connect() as wire:
        # More than the server takes at once, so that it cannot know the length when it begins.
        response = wire.get("/big?32", "Connection: keep-alive", version="1.0")
        assert (response.framing, len(response.body)) == ("close", 32 * 65536)


def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    server = serve("echo:app", "-w", "2")
    with server.connect() as wire:
        wire.send(b"".join(request("GET", f"/{number}") for number in range(20)))
        paths = [wire.response().json()["environ"]["PATH_INFO"] for _ in range(20)]
    assert paths == [f"/{number}" for number in range(20)]


def test_a_pipelined_request_waits_for_the_slow_one_before_it(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "-w", "2", env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/wait?slow") + request("GET", "/pid?quick"))
        gate.announcement()
        assert wire.silent(0.2), "the second answer must not overtake the first"
        gate.let_pass(1)
        assert wire.response().text.endswith("slow")
        assert wire.response().text.endswith("quick")


def test_nothing_after_connection_close_is_served(hello: Server) -> None:
    with hello.connect() as wire:
        wire.send(request("GET", "/", ["Connection: close"]) + request("GET", "/"))
        assert wire.response().closes()
        assert wire.closed()


@pytest.mark.own("gunicorn's workers look at idle connections once a second only")
def test_an_idle_connection_is_closed_after_keep_alive_and_not_before(serve: Serve) -> None:
    server = serve("hello:app", "--keep-alive", "1")
    with server.connect() as wire:
        asked_s = time.monotonic()
        wire.get("/")
        assert wire.closed()
        assert time.monotonic() - asked_s >= 0.9


def test_a_client_that_still_takes_its_answers_does_not_idle(serve: Serve) -> None:
    server = serve("answers:app", "--keep-alive", "1")
    count, size = 100, 100_000
    with Wire(server.address.connect(receive_buffer_bytes=65536)) as wire:
        wire.send(request("GET", f"/big-whole?{size}") * count)
        time.sleep(2)  # longer than keep-alive: nothing of the server's is to be seen meanwhile
        assert [len(wire.response().body) for _ in range(count)] == [size] * count


def test_a_connection_opened_and_closed_without_a_word_is_no_error(hello: Server) -> None:
    mark = hello.log.mark()
    hello.connect().close()
    hello.connect().reset()
    with hello.connect() as wire:
        assert wire.get("/").status == 200
    assert not hello.log.matches(r"(?i)error|traceback|panic", mark)
