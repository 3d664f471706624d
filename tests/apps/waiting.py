"""Requests that a test holds and lets go: /wait announces itself and waits, /pid answers at once.

`/nap?MS-anything` sleeps; `/hold-stream` sends its head and a first chunk before it waits.
"""

import os
import threading
import time
from collections.abc import Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment
from wsgiref.validate import validator

from rendezvous import announce, wait_for_pass


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    started_s, pid, query = time.monotonic(), os.getpid(), environ["QUERY_STRING"]
    match environ["PATH_INFO"]:
        case "/wait":
            announce(f"{pid} {threading.get_ident()} {query}")
            wait_for_pass()
        case "/echo":
            announce(f"{pid} {threading.get_ident()} {query}")
            body = environ["wsgi.input"].read()
            wait_for_pass()
            start_response("200 OK", [("Content-Type", "application/octet-stream")])
            return [body]
        case "/nap":
            time.sleep(int(query.partition("-")[0]) / 1000)
        case "/hold-stream":
            return stream(start_response)
        case "/served":
            joined_s = started_s - environ["stanchion.queue_wait"]
            announce(f"{query} {joined_s:.6f} {started_s:.6f}")
        case "/gone":
            return client_gone(environ, start_response)
        case "/gone-in-a-thread":
            ask_in_a_thread(environ["stanchion.client_gone"])
        case "/busy":
            announce(f"{pid}")
            while True:
                pass
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{pid} {query}".encode()]


def stream(start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    yield b"first"
    announce(f"{os.getpid()} {threading.get_ident()} stream")
    wait_for_pass()
    yield b"last"


def client_gone(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Announces what stanchion.client_gone() says now, and after each pass until it says True."""
    gone: Any = environ["stanchion.client_gone"]
    announce(f"{gone()}")
    wait_for_pass()
    deadline_s = time.monotonic() + 10
    while not gone() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    announce(f"{gone()}")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"too late"]


def ask_in_a_thread(gone: Any) -> None:
    """Announces what it says in another thread: now, and after a pass, when the request has ended."""
    asked = threading.Event()

    def ask() -> None:
        announce(f"{gone()}")
        asked.set()
        wait_for_pass()
        announce(f"{gone()}")

    threading.Thread(target=ask).start()
    asked.wait()


checked = validator(app)
