"""Reads the whole request body and answers its length."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    declared_bytes = int(environ.get("CONTENT_LENGTH") or 0)
    body = b"%d\n" % len(environ["wsgi.input"].read(declared_bytes))
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
