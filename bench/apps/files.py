"""/1 and /100 are files of so many MiB, by wsgi.file_wrapper where the server has it (PEP 3333), and else in blocks."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO
from wsgiref.types import StartResponse, WSGIEnvironment

FOLDER = Path(".bench/files")
SIZES_MB = (1, 100)
SMALL = "small.css"
SMALL_BYTES = 10 << 10
BLOCK_BYTES = 64 << 10


def prepare() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for size_mb in SIZES_MB:
        path = FOLDER / str(size_mb)
        if not path.exists() or path.stat().st_size != size_mb << 20:
            path.write_bytes(b"x" * (size_mb << 20))
    (FOLDER / SMALL).write_bytes(b"x" * SMALL_BYTES)


def blocks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while block := file.read(BLOCK_BYTES):
            yield block


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    name = environ["PATH_INFO"].removeprefix("/") or "1"
    file = (FOLDER / name).open("rb")
    size = os.fstat(file.fileno()).st_size
    start_response("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(size))])
    wrapper = environ.get("wsgi.file_wrapper")
    wrapped: Iterable[bytes] = wrapper(file, BLOCK_BYTES) if wrapper else blocks(file)
    return wrapped
