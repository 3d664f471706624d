"""The least an app can do: what is left is the server."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

BODY = b"Hello, World!\n"
HEADERS = [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))]


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", HEADERS)
    return [BODY]
