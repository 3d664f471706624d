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


@pytest.mark.own("gunicorn sends the headers of both calls")
def test_start_response_again_with_exc_info_before_the_head_replaces_status_and_headers(answers: Server) -> None:
    with answers.connect() as wire:
        response = wire.get("/start-again-before-the-head")
    assert (response.status, response.reason, response.body) == (500, "Second Thoughts", b"second")
    assert response.header("X-First") is None
    assert response.header("X-Second") == "2"


@pytest.mark.own("gunicorn sends the head for an empty chunk")
def test_an_empty_chunk_does_not_send_the_head(answers: Server) -> None:
    """PEP 3333: the head waits for the first chunk that is not empty, so that the app may still change its mind."""
    with answers.connect() as wire:
        response = wire.get("/head-waits-for-the-first-chunk")
    assert (response.status, response.body) == (503, b"second")


def test_start_response_again_after_the_head_raises_what_the_app_gave_it(answers: Server) -> None:
    mark = answers.log.mark()
    with answers.connect() as wire:
        wire.send(request("GET", "/start-again-after-the-head"))
        with pytest.raises(BrokenOff) as broken:
            wire.response()
    assert broken.value.response is not None
    assert (broken.value.response.status, broken.value.response.body) == (200, b"sent")
    answers.log.wait("too late to change", mark)
    assert_still_serving(answers)


@pytest.mark.own("gunicorn has no stanchion.client_gone")
@pytest.mark.parametrize("called", ["client-gone", "start-response"])
def test_what_the_app_gives_to_start_response_may_call_the_response(answers: Server, called: str) -> None:
    mark = answers.log.mark()
    with answers.connect() as wire:
        assert wire.get(f"/calls-back?{called}").status == 500
    answers.log.wait("not a pair of a name and a value: a header that calls back", mark)


@pytest.mark.own("gunicorn has no stanchion.client_gone")
def test_an_exc_info_that_comes_too_late_may_call_the_response(answers: Server) -> None:
    mark = answers.log.mark()
    with answers.connect() as wire:
        wire.send(request("GET", "/calls-back-after-the-head"))
        with pytest.raises(BrokenOff):
            wire.response()
    answers.log.wait("called back too late", mark)


def test_start_response_may_be_called_by_the_first_step_of_the_iterable(answers: Server) -> None:
    with answers.connect() as wire:
        assert wire.get("/start-in-the-generator").body == b"started late"


@pytest.mark.parametrize("target", ["/never-starts", "/returns-none", "/raises", "/raises-after-start"])
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


def test_what_is_written_comes_before_what_is_returned(answers: Server) -> None:
    with answers.connect() as wire:
        assert wire.get("/write").body == b"written,again,returned"


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


@pytest.mark.parametrize(
    "case",
    [
        "newline-in-value",
        "bare-newline-in-value",
        "nul-in-value",
        "newline-in-name",
        "space-in-name",
        "empty-name",
        "newline-in-status",
    ],
)
def test_injection_through_status_and_headers_is_refused(answers: Server, case: str) -> None:
    assert_bad_start(answers, case)


@pytest.mark.parametrize(
    "case",
    [
        "bytes-status",
        "int-status",
        "no-number-status",
        "interim-status",
        "bytes-header-name",
        "bytes-header-value",
        "int-header-value",
        "not-latin-1",
        "header-is-no-pair",
        "two-lengths",
        "bad-length",
    ],
)
@pytest.mark.own("gunicorn passes some of these on")
def test_a_status_or_header_of_the_wrong_kind_is_refused(answers: Server, case: str) -> None:
    assert_bad_start(answers, case)


@pytest.mark.own("gunicorn sends the head before it looks at the body")
def test_a_body_of_text_is_answered_500(answers: Server) -> None:
    mark = answers.log.mark()
    with answers.connect() as wire:
        assert wire.get("/text-body").status == 500
    answers.log.wait("Traceback|Error", mark)


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
