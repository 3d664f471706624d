"""Static files on a file system that asks a server, which may not answer: only helper threads wait for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.counts import Counts
from support.fuse import FileSystem, is_there
from support.patience import eventually
from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = [
    pytest.mark.own("gunicorn serves no files by itself"),
    pytest.mark.skipif(not is_there(), reason="NOT TESTED ON A FILE SYSTEM OF ITS OWN: needs root and /dev/fuse"),
]

FILES = {"a.txt": b"x" * 300_000, "empty.txt": b"", "direct.bin": bytes(range(256)) * 12_000}
HELPER = "stanchion-disk"


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[FileSystem]:
    mounted = FileSystem(tmp_path / "foreign", FILES)
    try:
        yield mounted
    finally:
        mounted.close()


@pytest.fixture
def server(serve: Serve, foreign: FileSystem, counts: Counts, tmp_path: Path) -> Server:
    own = tmp_path / "own"
    own.mkdir()
    (own / "b.txt").write_bytes(b"of our own")
    directories = ["--static", f"/foreign={tmp_path}/foreign", "--static", f"/own={own}"]
    server = serve("hello:app", *directories, *counts.arguments)
    foreign.asked.clear()
    return server


def test_only_helper_threads_ask_it(server: Server, foreign: FileSystem) -> None:
    with server.connect() as wire:
        for name, content in FILES.items():
            answer = wire.get(f"/foreign/{name}")
            assert (answer.status, answer.body) == (200, content)
        answer = wire.ask("HEAD", "/foreign/a.txt")
        assert (answer.status, answer.header("Content-Length")) == (200, "300000")
        tag = answer.header("ETag")
        assert wire.get("/foreign/a.txt", f"If-None-Match: {tag}").status == 304
        assert wire.get("/foreign/a.txt", "Range: bytes=300000-").status == 416
        assert wire.get("/foreign/a.txt", "Range: bytes=10-19,30-39").status == 206
    eventually(lambda: [what for what, _ in foreign.asked].count("flush") >= 7, "each file is closed")
    assert {who for _, who in foreign.asked} == {HELPER}


def test_who_leaves_in_the_middle_leaves_no_close_to_the_loop(server: Server, foreign: FileSystem) -> None:
    with server.connect() as wire:
        wire.send(request("GET", "/foreign/direct.bin"))
        assert wire.head().status == 200
    eventually(lambda: "flush" in [what for what, _ in foreign.asked], "the file is closed")
    assert {who for _, who in foreign.asked} == {HELPER}


def test_while_it_hangs_everything_else_goes_on(server: Server, foreign: FileSystem) -> None:
    foreign.hang()
    # More than there are threads for such files.
    waiting = [Wire.connect(server.address) for _ in range(40)]
    for wire in waiting:
        wire.send(request("GET", "/foreign/a.txt"))
    eventually(lambda: foreign.asked, "it is asked")
    with server.connect() as wire:
        assert wire.get("/own/b.txt").body == b"of our own"
        assert wire.get("/").status == 200
    foreign.go_on()
    for wire in waiting:
        with wire:
            assert wire.response().body == FILES["a.txt"]
    assert {who for _, who in foreign.asked} == {HELPER}


def test_what_it_fails_to_give_is_counted_as_trouble(server: Server, foreign: FileSystem, counts: Counts) -> None:
    with server.connect() as wire:
        with counts.one_more("static"):
            assert wire.get("/foreign/empty.txt").status == 200
        foreign.fail()
        with counts.one_more("refused_file_failed"):
            answer = wire.get("/foreign/a.txt")
            assert (answer.status, answer.text) == (500, "the file cannot be read\n")
    server.log.only("a static file cannot be read")
