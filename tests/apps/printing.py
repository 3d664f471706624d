"""Prints, and starts a program that does."""

import os
import subprocess
import sys
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    print("printed to stdout", environ["PATH_INFO"])
    print("printed to stderr", environ["PATH_INFO"], file=sys.stderr)
    subprocess.run(["echo", "by another program", environ["PATH_INFO"]], check=True)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
