"""start_response: once, or again with exc_info before the head is out; write(); and what it must refuse (PEP 3333)."""

import pytest

from support.gate import Gate
from support.server import Serve, Server
from support.wire import BrokenOff, Wire, request


@pytest.fixture(scope="module")
def answers(shared_serve: Serve) -> Server:
    return shared_serve("answers:app")


def assert_still_serving(server: Server) -> None:
    with server.connect() as wire:
        assert wire.get("/with-length").body == b"four"


def test_start_response_twice_without_exc_info_is_an_error(answers: Server) -> None:
    mark = answers.log.mark()
    with answers.connect() as wire:
        assert wire.get("/start-twice").status == 500
    answers.log.wait("Traceback", mark)
    assert_still_serving(answers)


def test_start_response_again_after_the_head_raises_what_the_app_gave_it(answers: Server) -> None:
    mark = answers.log.mark()
    with answers.connect() as wire:
        wire.send(request("GET", "/start-again-after-the-head"))
        torn = wire.torn_response()
    assert (torn.status, torn.body) == (200, b"sent")
    answers.log.wait("too late to change", mark)
    assert_still_serving(answers)


@pytest.mark.parametrize("target", ["/never-starts", "/raises-after-start"])
def test_an_app_that_breaks_the_protocol_is_answered_500_and_logged(answers: Server, target: str) -> None:
    mark = answers.log.mark()
    with answers.connect() as wire:
        response = wire.get(target)
        assert response.status == 500
        assert b"Traceback" not in response.body, "the client must not see the app's code"
    answers.log.wait("Traceback|Error", mark)
    assert_still_serving(answers)


@pytest.mark.parametrize("target", ["/raises", "/raises-after-start"])
def test_the_log_shows_where_the_app_failed(answers: Server, target: str) -> None:
    mark = answers.log.mark()
    with answers.connect() as wire:
        wire.get(target)
    answers.log.wait("Traceback", mark)
    answers.log.wait(r"answers\.py.*, line \d+, in raises", mark)
    answers.log.wait("RuntimeError: ", mark)


@pytest.mark.own("gunicorn lets the worker exit and the client wait in vain")
def test_an_app_that_raises_system_exit_is_answered_500(answers: Server) -> None:
    with answers.connect() as wire:
        assert wire.get("/exits").status == 500
    assert_still_serving(answers)


@pytest.mark.parametrize("target", ["/write-goes-out-at-once", "/chunk-goes-out-at-once"])
def test_written_and_yielded_data_goes_out_before_the_app_goes_on(serve: Serve, gate: Gate, target: str) -> None:
    """PEP 3333: a server must not delay a chunk until the app is asked for the next."""
    server = serve("answers:app", env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", target))
        assert wire.head().status == 200
        assert b"early" in wire.body_bytes(len(b"5\r\nearly\r\n"))
        gate.let_pass(1)
        assert b"late" in wire.body_bytes(len(b"4\r\nlate\r\n"))


@pytest.mark.own("gunicorn drops what the app says")
def test_an_app_may_close_its_connection(answers: Server) -> None:
    with answers.connect() as wire:
        for kept in ("keep-alive", "x-close"):
            response = wire.get(f"/closes?{kept}")
            assert (response.body, response.header("Connection")) == (b"last", None)
        for version, said in (("1.1", "ClOsE"), ("1.1", "x-a,close"), ("1.0", "close")):
            with answers.connect() as other:
                response = other.get(f"/closes?{said}", "Connection: keep-alive", version=version)
                assert (response.body, response.all("Connection")) == (b"last", ["close"])
                assert other.closed()


@pytest.mark.parametrize("case", ["newline-in-value", "newline-in-status"])
def test_injection_through_status_and_headers_is_refused(answers: Server, case: str) -> None:
    assert_bad_start(answers, case)


@pytest.mark.own("gunicorn passes some of these on")
def test_a_status_or_header_of_the_wrong_kind_is_refused(answers: Server) -> None:
    assert_bad_start(answers, "two-lengths")


def assert_bad_start(server: Server, case: str) -> None:
    mark = server.log.mark()
    with server.connect() as wire:
        response = wire.get(f"/bad-start?{case}")
        assert response.status == 500
        assert response.header("X-Injected") is None
        assert b"X-Injected" not in response.body
        assert_nothing_follows(wire, server)
    server.log.wait("Error|rror:", mark)


def assert_nothing_follows(wire: Wire, server: Server) -> None:
    """The connection is closed, or in step: its next answer is the one to the next request."""
    try:
        assert wire.get("/with-length").body == b"four"
    except (BrokenOff, ConnectionError):
        assert_still_serving(server)


def test_the_app_may_not_frame_the_message_itself(answers: Server) -> None:
    """A Transfer-Encoding of the app is refused or replaced, never sent beside the server's framing."""
    with answers.connect() as wire:
        response = wire.get("/hop-by-hop")
        assert response.status in (200, 500)
        if response.status == 200:
            assert response.body in (b"hello", b"5\r\nhello\r\n0\r\n\r\n")


def test_a_write_from_a_past_request_reaches_no_client(answers: Server) -> None:
    for _ in range(2):
        with answers.connect() as wire:
            assert wire.get("/keeps-start-response").body == b"now"
