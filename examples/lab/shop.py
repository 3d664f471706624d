"""Stands for your app: a page of 50 ms."""

import time
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    time.sleep(0.05)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")])
    return [b"page\n"]
