"""An app that blocks for `?ms=`, as apps do that wait for a database."""

import itertools
import os
import time
from collections.abc import Iterable
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIEnvironment

served = itertools.count()


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answers `served started_s joined_s pid`; joined is -1 where the server does not give the wait."""
    started_s = time.monotonic()
    number = next(served)
    time.sleep(float(parse_qs(environ["QUERY_STRING"])["ms"][0]) / 1000)
    joined_s = started_s - environ.get("stanchion.queue_wait", started_s + 1)
    body = f"{number} {started_s:.6f} {joined_s:.6f} {os.getpid()}".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
