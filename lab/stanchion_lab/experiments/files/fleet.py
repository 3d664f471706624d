"""Pages that wait, as for a database: /fast for 5 ms, /slow for 100 ms, each SLOWER times as long. Each request that
has a number adds it to the file `ran` before anything else; X-Worker is the name of the server."""

import os
import time
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

SLOWER = float(os.environ.get("SLOWER", "1"))
WAIT_S = {"/fast": 0.005 * SLOWER, "/slow": 0.1 * SLOWER}
RAN = os.open("ran", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
SERVER = os.environ["LAB_SERVER"]
HEAD = [("Content-Type", "text/plain"), ("Content-Length", "3"), ("X-Worker", SERVER)]


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    if number := environ.get("HTTP_X_NUMBER"):
        os.write(RAN, f"{number}\n".encode())
    time.sleep(WAIT_S.get(environ["PATH_INFO"], 0.0))
    start_response("200 OK", list(HEAD))
    return [b"ok\n"]
