"""The smallest WSGI app, with nothing but PEP 3333.

stanchion serve --chdir examples/wsgi hello
"""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    body = b"Hello from the head of the line.\n"
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    start_response("200 OK", headers)
    return [body]
