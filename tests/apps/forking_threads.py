"""A WSGI app that forks: the child comes back as its parent does, or asks to exit. Answers name the process."""

import os
import sys
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path in ("/returns", "/exits"):
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        elif path == "/exits":
            sys.exit(3)
    start_response("200 OK", [])
    return [str(os.getpid()).encode()]
