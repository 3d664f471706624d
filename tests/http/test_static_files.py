"""--static: files of a directory, answered without a worker, as RFC 9110 has it and as nginx does."""

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.address import Address
from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.proxies import nginx_as_peer, program
from support.server import Serve, Server
from support.wire import Response, Wire, request

pytestmark = pytest.mark.own("gunicorn serves no files")

MODIFIED_S = 1_000_000_000
MODIFIED = "Sun, 09 Sep 2001 01:46:40 GMT"
TEXT = b"".join(b"%08d\n" % number for number in range(1_000))
ETAG = f'"{MODIFIED_S:x}-{len(TEXT):x}"'
LARGE = hashlib.shake_128(b"static").digest(3_000_001)
CODED = b"as if it were brotli"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site") / "files"
    (site / "css").mkdir(parents=True)
    (site.parent / "secret.css").write_bytes(b"secret")
    for name, content in {
        "a.css": TEXT,
        "css/b.css": b"b{}",
        "css/b.css.gz": CODED,
        "empty.txt": b"",
        "large.bin": LARGE,
        "app.0f3c9a2b41de.js": b"1",
        "name with spaces.txt": b"spaces",
        "ümlaut.txt": "ümlaut".encode(),
        ".htpasswd": b"secret",
        "unknown.xyzzy": b"?",
    }.items():
        (site / name).write_bytes(content)
        os.utime(site / name, (MODIFIED_S, MODIFIED_S))
    (site / "out.css").symlink_to("../secret.css")
    (site / "in.css").symlink_to("css/b.css")
    return site


@pytest.fixture(scope="module")
def server(shared_serve: Serve, site: Path) -> Server:
    return shared_serve("hello:app", "--static", f"/static={site}", "--static-missing", "404")


@pytest.fixture(scope="module")
def nginx(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """It says of conditions what RFC 9110 says, once `if_modified_since` is not `exact`."""
    if not program("nginx"):
        pytest.skip("NOT COMPARED WITH NGINX: nginx is not installed")
    types = "types { text/css css; text/plain txt; text/javascript js; } default_type application/octet-stream;"
    location = f"/static/ {{ alias {site}/; gzip_static on; gzip_vary on; }}"
    with nginx_as_peer(tmp_path_factory.mktemp("nginx"), f"if_modified_since before; {types}", location) as address:
        yield address


REQUESTS = {
    "whole": ("a.css",),
    "a query means nothing": ("a.css?v=1",),
    "encoded": ("name%20with%20spaces.txt",),
    "an encoded letter": ("%61.css",),
    "UTF-8": ("%C3%BCmlaut.txt",),
    "empty": ("empty.txt",),
    "of no known type": ("unknown.xyzzy",),
    "a link within": ("in.css",),
    "nothing": ("none.css",),
    "a tag that is the same": ("a.css", f"If-None-Match: {ETAG}"),
    "a weak one": ("a.css", f"If-None-Match: W/{ETAG}"),
    "any": ("a.css", "If-None-Match: *"),
    "one of several": ("a.css", f'If-None-Match: "x", {ETAG}'),
    "another one": ("a.css", 'If-None-Match: "x"'),
    "not changed since": ("a.css", f"If-Modified-Since: {MODIFIED}"),
    "not since later": ("a.css", "If-Modified-Since: Mon, 10 Sep 2001 01:46:40 GMT"),
    "changed since": ("a.css", "If-Modified-Since: Sat, 08 Sep 2001 01:46:40 GMT"),
    "since no date": ("a.css", "If-Modified-Since: yesterday"),
    "if it is this one": ("a.css", f"If-Match: {ETAG}"),
    "if it is another one": ("a.css", 'If-Match: "x"'),
    "if it is any": ("a.css", "If-Match: *"),
    "unless it was changed": ("a.css", f"If-Unmodified-Since: {MODIFIED}"),
    "unless it was changed, which it was": ("a.css", "If-Unmodified-Since: Sat, 08 Sep 2001 01:46:40 GMT"),
    "the first byte": ("a.css", "Range: bytes=0-0"),
    "some": ("a.css", "Range: bytes=100-199"),
    "the rest": ("a.css", "Range: bytes=8990-"),
    "the last": ("a.css", "Range: bytes=-5"),
    "more than the last": ("a.css", "Range: bytes=-99999"),
    "past the end": ("a.css", "Range: bytes=8990-99999"),
    "behind the end": ("a.css", "Range: bytes=9000-"),
    "backwards": ("a.css", "Range: bytes=2-1"),
    "of another unit": ("a.css", "Range: lines=1-2"),
    "no range": ("a.css", "Range: bytes=x"),
    "several": ("a.css", "Range: bytes=0-1,100-101, -2"),
    "several, some behind the end": ("a.css", "Range: bytes=0-1,9000-"),
    "more than all": ("a.css", "Range: bytes=0-8999,0-8999"),
    "a part of the same": ("a.css", "Range: bytes=0-1", f"If-Range: {ETAG}"),
    "a part of another": ("a.css", "Range: bytes=0-1", 'If-Range: "x"'),
    "a part of what was changed then": ("a.css", "Range: bytes=0-1", f"If-Range: {MODIFIED}"),
    "a part of what was changed before": (
        "a.css",
        "Range: bytes=0-1",
        "If-Range: Sat, 08 Sep 2001 01:46:40 GMT",
    ),
    "not changed, a part": ("a.css", "Range: bytes=0-1", f"If-None-Match: {ETAG}"),
    "in a coding": ("css/b.css", "Accept-Encoding: gzip"),
    "in a coding that is not taken": ("css/b.css", "Accept-Encoding: gzip;q=0"),
    "in no coding": ("css/b.css",),
}
COMPARED = (
    "Content-Type",
    "Content-Length",
    "Content-Encoding",
    "Content-Range",
    "ETag",
    "Last-Modified",
    "Vary",
)


def ask(address: Address, method: str, target: str, *fields: str) -> Response:
    with Wire.connect(address) as wire:
        return wire.ask(method, target, *fields)


@pytest.mark.parametrize("name", REQUESTS)
def test_an_answer_is_as_nginx_gives_it(server: Server, nginx: Address, name: str) -> None:
    target, *fields = REQUESTS[name]
    ours, theirs = (ask(address, "GET", f"/static/{target}", *fields) for address in (server.address, nginx))
    assert ours.status == theirs.status
    if ours.status in {404, 412, 416}:  # each says so in its own words
        assert ours.header("Content-Range") == theirs.header("Content-Range")
        return
    if (theirs.header("Content-Type") or "").startswith("multipart/byteranges"):
        assert parts(ours) == parts(theirs)
        return
    assert {field: ours.header(field) for field in COMPARED} == {field: theirs.header(field) for field in COMPARED}
    assert ours.body == theirs.body


def parts(answer: Response) -> list[tuple[bytes, list[bytes]]]:
    """The content and the fields of each part."""
    kind, _, boundary = (answer.header("Content-Type") or "").partition("; boundary=")
    assert kind == "multipart/byteranges"
    before, *middle, end = answer.body.split(b"\r\n--" + boundary.encode())
    assert (before, end) == (b"", b"--\r\n")
    found = []
    for part in middle:
        head, _, content = part.partition(b"\r\n\r\n")
        found.append((content, sorted(head.strip().split(b"\r\n"))))
    return found


@pytest.mark.parametrize(
    "path",
    [
        ".htpasswd",
        "out.css",
        "css",
        "css/",
        "",
        "/a.css",
        "css/../a.css",
        "..%2fsecret.css",
        "%2e%2e/secret.css",
        "%00",
    ],
)
def test_what_is_no_file_of_the_directory_is_not_there(server: Server, path: str) -> None:
    answer = ask(server.address, "GET", f"/static/{path}")
    assert (answer.status, answer.body) == (404, b"there is no such file\n")


def test_a_head_is_that_of_the_whole_file(server: Server) -> None:
    with server.connect() as wire:
        head = wire.ask("HEAD", "/static/a.css", "Range: bytes=0-1")
        whole = wire.get("/static/a.css")
    assert (head.status, head.body, head.header("ETag")) == (200, b"", ETAG)
    assert head.header("Content-Length") == str(len(TEXT)) == whole.header("Content-Length")


def test_a_part_in_a_coding_is_a_part_of_that(server: Server) -> None:
    """nginx answers with all of it."""
    answer = ask(server.address, "GET", "/static/css/b.css", "Accept-Encoding: gzip", "Range: bytes=3-4")
    assert (answer.status, answer.body, answer.header("Content-Encoding")) == (206, CODED[3:5], "gzip")


@pytest.mark.privileges
def test_a_large_file_goes_out_whole_and_the_connection_goes_on(server: Server) -> None:
    with server.connect() as wire:
        for _ in range(3):
            answer = wire.get("/static/large.bin")
            assert hashlib.sha256(answer.body).digest() == hashlib.sha256(LARGE).digest()
        assert wire.get("/static/large.bin", "Range: bytes=2999999-").body == LARGE[2_999_999:]
        wire.send(request("GET", "/static/a.css") * 3)
        assert [wire.response().body for _ in range(3)] == [TEXT] * 3


def test_an_empty_file_is_answered_at_once(server: Server) -> None:
    """The kernel would keep a head back for 200 ms that something is to follow (MSG_MORE in send(2)).

    An answer that takes longer may be that of a busy machine, and one that takes less shows that nothing is kept back.
    """
    with server.connect() as wire:

        def is_at_once() -> bool:
            since_s = time.monotonic()
            assert wire.get("/static/empty.txt").header("Content-Length") == "0"
            return time.monotonic() - since_s < 0.15

        for _ in range(10):
            eventually(is_at_once, "an answer comes at once")


def test_a_name_with_a_hash_is_kept_for_good(server: Server) -> None:
    with server.connect() as wire:
        hashed = wire.get("/static/app.0f3c9a2b41de.js").header("Cache-Control")
        assert (hashed, wire.get("/static/a.css").header("Cache-Control")) == (
            "public, max-age=31536000, immutable",
            None,
        )


def test_other_methods_and_other_paths_are_the_apps(server: Server) -> None:
    with server.connect() as wire:
        assert wire.post("/static/a.css", b"x").body == wire.get("/statics/a.css").body == wire.get("/static").body
        assert wire.get("/").body.startswith(b"hello")


def test_two_versions_of_one_second_and_one_length_have_two_tags(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    file = tmp_path / "files/a.css"
    server = serve("hello:app", "--static", f"/={file.parent}")
    tags = []
    with server.connect() as wire:
        for version, nanoseconds in ((b"one", 0), (b"two", 1), (b"ten", 999_999_999)):
            file.write_bytes(version)
            os.utime(file, ns=(0, MODIFIED_S * 10**9 + nanoseconds))
            answer = wire.get("/a.css")
            tags.append(answer.header("ETag"))
            assert (answer.body, answer.header("Last-Modified")) == (version, MODIFIED)
            assert wire.ask("GET", "/a.css", f"If-None-Match: {tags[-1]}").status == 304
    assert len(set(tags)) == 3
    assert tags[0] == f'"{MODIFIED_S:x}-3"'


def test_no_seat_is_needed(serve: Serve, site: Path, gate: Gate, tmp_path: Path) -> None:
    """The only worker is busy; files come nevertheless, and are counted as static files."""
    counts = Counts(tmp_path / "control.sock")
    held = serve("waiting:app", "--static", f"/={site}", *counts.arguments, env=gate.environment)
    with held.connect() as busy, held.connect() as wire:
        busy.send(request("GET", "/wait"))
        gate.announcement()
        for _ in range(5):
            assert wire.get("/a.css").body == TEXT
        assert wire.ask("GET", "/a.css", f"If-None-Match: {ETAG}").status == 304
        # An answer is counted once the kernel has it, and its client may be quicker.
        eventually(lambda: counts.requests()["static"] == 6, "all are counted")
        gate.let_pass(1)
        assert busy.response().status == 200
        # A path without a file goes to the app here.
        assert wire.get("/pid").status == 200
    assert counts.settled()["answered"] == 2


@pytest.mark.privileges
def test_a_reload_sees_a_directory_that_has_taken_the_place(serve: Serve, tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    current = tmp_path / "current"
    current.symlink_to("old")
    server = serve("hello:app", "--static", f"/static={current}")
    assert ask(server.address, "GET", "/static/a.txt").body == b"old"
    current.unlink()
    current.symlink_to("new")
    assert ask(server.address, "GET", "/static/a.txt").body == b"old"
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded")
    assert ask(server.address, "GET", "/static/a.txt").body == b"new"


def test_a_directory_that_is_not_there_stops_the_start(build: Serve, tmp_path: Path) -> None:
    server = build("hello:app", "--static", f"/static={tmp_path}/none").launch()
    assert server.exit_code() != 0
    server.log.wait("static_files: the directory .*none cannot be opened: No such file")
