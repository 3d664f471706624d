"""An answer in two chunks that come one after the other, together as long as was announced."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

SIZE = 400_000


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(SIZE))])
    yield b"a" * (SIZE // 2)
    yield b"b" * (SIZE // 2)
