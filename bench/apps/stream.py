"""A mebibyte from a generator, with no Content-Length: in chunks of 16 KiB on /16, of 64 KiB on any other path."""

from collections.abc import Iterable, Iterator
from wsgiref.types import StartResponse, WSGIEnvironment

TOTAL_BYTES = 1 << 20


def chunks(chunk_bytes: int) -> Iterator[bytes]:
    chunk = b"x" * chunk_bytes
    for _ in range(TOTAL_BYTES // chunk_bytes):
        yield chunk


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "application/octet-stream")])
    return chunks(16 << 10 if environ["PATH_INFO"] == "/16" else 64 << 10)
