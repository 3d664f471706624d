"""The iterable an app returns: consumed once, closed once whatever happens, cut to its Content-Length."""

import contextlib
from pathlib import Path

import pytest

from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.server import STANCHION, Serve, Server
from support.wire import BrokenOff, request


@pytest.fixture
def answers(serve: Serve, gate: Gate) -> Server:
    return serve("answers:app", env=gate.environment)


def assert_closed_once(server: Server, gate: Gate, name: str = "closed") -> None:
    assert gate.announcement() == name
    with server.connect() as wire:
        assert wire.get("/with-length").status == 200
    assert gate.announced() == [], "close() came once"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("target", ["/closing", "/closing-head"])
def test_close_is_called_once_after_a_whole_response(answers: Server, gate: Gate, target: str, method: str) -> None:
    with answers.connect() as wire:
        assert wire.ask(method, target).body == (b"onetwo" if method == "GET" else b"")
    assert_closed_once(answers, gate)


def test_an_iterable_that_fails_before_its_first_chunk_becomes_a_500(answers: Server, gate: Gate) -> None:
    mark = answers.log.mark()
    with answers.connect() as wire:
        response = wire.get("/fails-before-the-first-chunk")
        assert response.status == 500
        assert response.header("X-From") is None
    answers.log.wait("chunk 0 fails", mark)
    assert_closed_once(answers, gate)


def test_a_chunked_response_that_fails_in_the_middle_is_broken_off_without_the_last_chunk(
    answers: Server, gate: Gate
) -> None:
    """The client must be able to tell a torn response from a whole one (RFC 9112 section 8)."""
    mark = answers.log.mark()
    with answers.connect() as wire:
        wire.send(request("GET", "/fails-after-the-first-chunk"))
        torn = wire.torn_response()
    assert (torn.status, torn.body) == (200, b"one")
    answers.log.wait("chunk 1 fails", mark)
    assert_closed_once(answers, gate)


def test_a_response_with_a_length_that_fails_in_the_middle_is_broken_off(answers: Server, gate: Gate) -> None:
    with answers.connect() as wire:
        wire.send(request("GET", "/fails-after-the-first-chunk-with-length"))
        assert wire.torn_response().body == b"one"
    assert_closed_once(answers, gate)


def test_an_error_in_close_is_logged_and_harms_no_client(answers: Server, gate: Gate) -> None:
    mark = answers.log.mark()
    with answers.connect() as wire:
        assert wire.get("/close-fails").body == b"four"
    answers.log.wait("close fails", mark)
    assert_closed_once(answers, gate)


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_close_is_called_when_the_client_leaves_in_the_middle(answers: Server, gate: Gate, leave: str) -> None:
    with answers.connect() as wire:
        wire.send(request("GET", "/endless"))
        assert gate.announcement() == "started"
        assert wire.head().status == 200
        wire.body_bytes(100_000)
        wire.reset() if leave == "reset" else wire.close()
    assert_closed_once(answers, gate)


def test_a_body_longer_than_its_content_length_is_cut_and_logged(answers: Server) -> None:
    mark = answers.log.mark()
    with answers.connect() as wire:
        response = wire.get("/body-too-long")
        assert (response.framing, response.body) == ("length", b"four")
        with contextlib.suppress(BrokenOff, ConnectionError):
            assert wire.get("/with-length").status == 200, "the surplus is not taken for a response"
    if answers.kind is STANCHION:
        answers.log.wait("(?i)content-length", mark)


@pytest.mark.own("gunicorn leaves the connection open and the client waiting")
def test_a_body_shorter_than_its_content_length_ends_the_connection_and_is_logged(answers: Server) -> None:
    mark = answers.log.mark()
    with answers.connect() as wire:
        wire.send(request("GET", "/body-too-short"))
        assert wire.torn_response().body == b"four"
    answers.log.wait("(?i)content-length", mark)


def test_head_of_a_response_whose_length_is_wrong_is_no_error(answers: Server) -> None:
    with answers.connect() as wire:
        assert wire.ask("HEAD", "/body-too-short").header("Content-Length") == "10"
        assert wire.get("/with-length").body == b"four"


@pytest.mark.own("stanchion.client_gone is an extra of stanchion")
def test_client_gone_tells_a_running_app_that_its_client_has_left(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/gone"))
        assert gate.announcement() == "False"
    gate.let_pass(1)
    assert gate.announcement() == "True"


@pytest.mark.own("stanchion.client_gone is an extra of stanchion")
def test_client_gone_may_be_asked_by_any_thread_and_says_yes_once_the_request_has_ended(
    serve: Serve, gate: Gate
) -> None:
    server = serve("waiting:app", env=gate.environment)
    with server.connect() as wire:
        assert wire.get("/gone-in-a-thread").status == 200
        assert gate.announcement() == "False"
        gate.let_pass(1)
        assert gate.announcement() == "True"


@pytest.mark.own("gunicorn runs the app for nobody")
def test_the_app_is_never_run_for_a_client_that_left_while_waiting(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    counts = Counts(tmp_path / "control")
    server = serve("waiting:app", *counts.arguments, env=gate.environment)
    with server.connect() as first, server.connect() as impatient, server.connect() as last:
        first.send(request("GET", "/wait?first"))
        assert gate.announcement().endswith("first")
        # More than one can be handed ahead to the only seat; the later ones are still in the line.
        ahead = [server.connect() for _ in range(2)]
        for wire in ahead:
            wire.send(request("GET", "/wait?ahead"))
        # The acceptor may read several connections in another order than they have sent in.
        eventually(lambda: counts.requests()["arrived"] == 3, "those before it have arrived")
        impatient.send(request("GET", "/wait?impatient"))
        last.send(request("GET", "/wait?last"))
        impatient.close()
        eventually(lambda: counts.requests()["abandoned_waiting"] == 1, "the server has heard of it")
        gate.open()
        assert last.response().text.endswith("last")
        for wire in ahead:
            wire.response()
            wire.close()
    assert not [line for line in gate.announced() if line.endswith("impatient")]
