"""An app that takes more memory with each request to /grow?MEGABYTES, and keeps it."""

import os
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass

kept: list[bytearray] = []


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    match environ["PATH_INFO"]:
        case "/grow":
            kept.append(bytearray(os.urandom(1)) * (int(environ["QUERY_STRING"]) << 20))
        case "/grow-and-wait":
            kept.append(bytearray(os.urandom(1)) * (int(environ["QUERY_STRING"]) << 20))
            announce(f"{os.getpid()}")
            wait_for_pass()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()}".encode()]
