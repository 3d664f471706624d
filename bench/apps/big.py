"""/ costs about as much as a small view of a framework, some 100 µs of CPU; /big is 2 MiB."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

BIG_BYTES = 2 << 20
WORK = 5_000
PAGE = b"%d\n" % sum(range(WORK))


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    environ["wsgi.input"].read()
    body = b"x" * BIG_BYTES if environ["PATH_INFO"] == "/big" else b"%d\n" % sum(range(WORK))
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
