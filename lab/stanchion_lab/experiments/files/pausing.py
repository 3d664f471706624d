"""Pages that wait, as for a database: / for PAUSE_MS, /slow for SLOW_MS, and both while there is a file `stall`."""

import os
import time
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

PAUSE_S = float(os.environ.get("PAUSE_MS", "20")) / 1e3
SLOW_S = float(os.environ.get("SLOW_MS", "200")) / 1e3
STALL = "stall"
LOOK_S = 0.005


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    time.sleep(SLOW_S if environ["PATH_INFO"] == "/slow" else PAUSE_S)
    while os.path.exists(STALL):
        time.sleep(LOOK_S)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3"), ("X-Worker", str(os.getpid()))])
    return [b"ok\n"]
