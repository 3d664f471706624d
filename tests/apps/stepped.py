"""Announces each request and waits for a pass, by two system calls that are always the same: for tests that count.

/first announces the worker's process id, too.
"""

import os
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

# The same as in apps/rendezvous.py, but opened once.
announcements = os.open(os.path.join(os.environ["GATE"], "announcements"), os.O_WRONLY)
passes = os.open(os.path.join(os.environ["GATE"], "passes"), os.O_RDONLY)

BODY = b"hello\n"


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    os.write(announcements, f"{path} {os.getpid()}\n".encode() if path == "/first" else f"{path}\n".encode())
    os.read(passes, 1)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))])
    return [BODY]
