"""A worker cannot change another's answer by sending files, and finds no finished request in shared memory."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.gate import Gate
from support.patience import eventually
from support.processes import standing_still
from support.server import Serve, Server
from support.wire import request

pytestmark = pytest.mark.own("gunicorn's workers have the client's socket")

GOOD, EVIL = b"what the app meant" * 1000, b"what another one meant" * 1000


@pytest.fixture
def others(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "others")
    yield gate
    gate.close()


@pytest.fixture
def server(serve: Serve, gate: Gate, others: Gate, tmp_path: Path) -> Server:
    (tmp_path / "good").write_bytes(GOOD)
    (tmp_path / "evil").write_bytes(EVIL)
    env = {
        "GOOD": str(tmp_path / "good"),
        "EVIL": str(tmp_path / "evil"),
        "OTHER_GATE": others.environment["GATE"],
        **gate.environment,
    }
    return serve("hostile:meddling", "--workers", "2", env=env)


@pytest.mark.privileges
def test_a_file_for_anothers_answer_is_not_taken(server: Server, gate: Gate, others: Gate) -> None:
    acceptor = server.acceptor()
    with server.connect() as honest, server.connect() as meddling:
        honest.send(request("GET", "/file"))
        assert gate.announcement() == "asked"
        meddling.send(request("GET", "/meddle"))
        assert others.announcement() == "asked"
        with standing_still(acceptor):
            gate.let_pass(1)
            assert gate.announcement() == "file closed"
            others.let_pass(1)
            assert others.announcement().startswith("sent"), "after it, so that it would count"
        answer, other = honest.response(), meddling.response()
    assert answer.body == GOOD
    assert answer.header("X-Pid") != other.header("X-Pid"), "they were two"


@pytest.mark.privileges
def test_messages_that_are_too_long_do_not_keep_the_files_behind_them(server: Server, gate: Gate, others: Gate) -> None:
    acceptor = server.acceptor()
    with server.connect() as honest, server.connect() as meddling:
        honest.send(request("GET", "/file"))
        assert gate.announcement() == "asked"
        meddling.send(request("GET", "/too-long"))
        assert others.announcement() == "asked"
        with standing_still(acceptor):
            others.let_pass(1)
            assert others.announcement().startswith("sent"), "before it, so that it would be in the way"
            gate.let_pass(1)
            assert gate.announcement() == "file closed"
        assert honest.response().body == GOOD
        others.let_pass(1)
        assert meddling.response().status == 200
    server.log.wait("which were too long to name a file")


def test_files_that_no_client_asked_for_are_closed_and_keep_no_worker_from_sending_its_own(
    server: Server, gate: Gate
) -> None:
    acceptor = server.acceptor()
    with server.connect() as wire:
        # Answered, it has been let in, and is one of those that the acceptor has.
        assert wire.get("/peep?00").status == 200
        before = acceptor.num_fds()
        assert int(wire.get("/flood").text) > 100
        gate.let_pass(2)
        assert wire.get("/file").body == GOOD, "also while there is no room for it"
        # The acceptor looks now and then, whether or not an answer names a file.
        eventually(lambda: int(wire.get("/flood").text) > 100, "there is room again")
        assert wire.get("/file").body == GOOD
        eventually(lambda: acceptor.num_fds() <= before, "it has kept none of them")


def test_nothing_of_a_request_or_its_answer_is_left_in_shared_memory(server: Server) -> None:
    secret = secrets.token_bytes(24)
    with server.connect() as wire:
        assert wire.post("/secret", secret).body == secret[::-1]
        for what in (secret, secret[::-1]):
            assert wire.get(f"/peep?{what.hex()}").text == "0"
