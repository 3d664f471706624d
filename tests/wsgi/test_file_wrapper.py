"""wsgi.file_wrapper: whatever way the file takes, the client gets the bytes the app meant, and the file is closed."""

import gzip
import random
from pathlib import Path

import pytest

from support.gate import Gate
from support.server import Serve, Server
from support.wire import request

SIZE = 1_000_003
CONTENT = random.Random(1).randbytes(SIZE)


@pytest.fixture(params=[[], ["--no-sendfile"]], ids=["sendfile", "no-sendfile"])
def files(serve: Serve, gate: Gate, tmp_path: Path, request: pytest.FixtureRequest) -> Server:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    return serve("bodies:files", *request.param, env={"FILE": str(path), **gate.environment})


@pytest.mark.privileges
def test_a_whole_file(files: Server, gate: Gate) -> None:
    with files.connect() as wire:
        assert wire.get("/").body == CONTENT
        assert gate.announcement() == "file closed"
        assert wire.get("/?block=100").body == CONTENT, "and the connection goes on"


def test_a_file_from_a_seeked_offset(files: Server) -> None:
    with files.connect() as wire:
        assert wire.get("/?offset=12345").body == CONTENT[12345:]


@pytest.mark.own("gunicorn's sendfile skips what the buffer has read ahead")
def test_a_file_from_where_the_app_has_read_to(files: Server) -> None:
    """The position of the Python object counts, not that of the descriptor, which its buffer has moved further."""
    with files.connect() as wire:
        assert wire.get("/?read=10").body == CONTENT[10:]


def test_a_file_from_its_end_is_empty(files: Server) -> None:
    with files.connect() as wire:
        assert wire.get(f"/?offset={SIZE}").body == b""


def test_a_content_length_shorter_than_the_file_cuts_it(files: Server) -> None:
    with files.connect() as wire:
        assert wire.get("/?length=1000").body == CONTENT[:1000]
        assert wire.get("/?offset=5000&length=100000").body == CONTENT[5000:105000]


@pytest.mark.own("gunicorn leaves the client waiting")
def test_a_content_length_longer_than_the_file_is_broken_off(files: Server) -> None:
    with files.connect() as wire:
        wire.send(request("GET", f"/?length={SIZE + 1}"))
        assert wire.torn_response().body == CONTENT


def test_head_of_a_file_sends_none_of_it(files: Server, gate: Gate) -> None:
    with files.connect() as wire:
        assert wire.ask("HEAD", "/?length=1000").header("Content-Length") == "1000"
        assert gate.announcement() == "file closed"
        assert wire.ask("HEAD", "/").body == b""
        assert wire.get("/?length=5").body == CONTENT[:5]


def test_an_http_1_0_client_gets_the_file_too(files: Server) -> None:
    with files.connect() as wire:
        response = wire.get("/", version="1.0")
        assert response.body == CONTENT


def test_an_object_without_a_descriptor_is_iterated(serve: Serve) -> None:
    server = serve("answers:app")
    with server.connect() as wire:
        assert wire.get("/file-like-only").body == b"m" * 20_000


def test_a_client_that_leaves_in_the_middle_of_a_file_does_not_leave_it_open(files: Server, gate: Gate) -> None:
    with files.connect() as wire:
        wire.send(request("GET", "/"))
        wire.body_bytes(10_000)
    assert gate.announcement() == "file closed"
    with files.connect() as wire:
        assert wire.get("/?length=5").body == CONTENT[:5]


def test_what_a_file_unpacks_is_sent_and_not_what_it_unpacks(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "packed"
    path.write_bytes(gzip.compress(CONTENT))
    with serve("bodies:unpacked_files", env={"FILE": str(path)}).connect() as wire:
        assert wire.get("/").body == CONTENT
