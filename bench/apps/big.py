"""/ is a few bytes; /big is 2 MiB."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

BIG_BYTES = 2 << 20
PAGES = {"/": b"Hello, World!\n", "/big": b"x" * BIG_BYTES}


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    body = PAGES[environ["PATH_INFO"]]
    environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
