"""An app whose paths are for a warm-up: they import late, fail, or leave something open."""

import json
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from wsgiref.types import StartResponse, WSGIEnvironment

from echo import plain
from rendezvous import announce

PIECE = bytes(1 << 20)

left: list[object] = []


def endless() -> Iterator[bytes]:
    pieces = 0
    try:
        while True:
            pieces += 1
            yield PIECE
    finally:
        announce(f"closed after {pieces}")


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answers with its process, also in an announcement if the request is of a warm-up."""
    is_warm_up = environ.get("stanchion.warm_up") is True
    status, path = "200 OK", environ["PATH_INFO"]
    match path:
        case "/late":
            # Announces its import.
            import imports.late  # noqa: F401
        case "/environ":
            shown = {key: plain(value) for key, value in environ.items()}
            if is_warm_up:
                announce(json.dumps(shown))
            start_response(status, [("Content-Type", "application/json")])
            return [json.dumps(shown).encode()]
        case "/raises":
            raise ZeroDivisionError("of the warm-up")
        case "/exits":
            raise SystemExit("of the warm-up")
        case "/headless":
            return [b"no start_response"]
        case "/text":
            start_response(status, [])
            return ["text"]  # type: ignore[list-item]
        case "/503" | "/400" | "/404":
            status = f"{path[1:]} Refused"
        case "/hangs":
            try:
                threading.Event().wait()
            finally:
                announce(f"broken off {is_warm_up}")
        case "/forks":
            child = os.fork()
            if not child:
                raise SystemExit("in the child")
            os.waitpid(child, 0)
        case "/endless":
            start_response(status, [])
            return endless()
        case "/connects":
            host, _, port = os.environ["PEER"].rpartition(":")
            left.append(socket.create_connection((host, int(port))))
        case "/connects-and-closes":
            host, _, port = os.environ["PEER"].rpartition(":")
            with closing(socket.create_connection((host, int(port)))):
                pass
        case "/listens":
            left.append(socket.create_server(("127.0.0.1", 0)))
    if is_warm_up and path == "/":
        announce(f"warmed {os.getpid()}")
    start_response(status, [("Content-Type", "text/plain")])
    return [f"{os.getpid()}".encode()]


def with_thread() -> object:
    """Makes the app, and leaves a thread."""
    threading.Thread(target=threading.Event().wait, name="flush", daemon=True).start()
    return app
