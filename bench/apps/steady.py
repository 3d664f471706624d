"""A page that takes 20 ms, and stands still as long as there is a certain file; answers how long it took, in ns."""

import os
import time
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

SERVICE_S = 0.020
STALL = os.environ.get("BENCH_STALL", "")
LOOK_S = 0.005


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    began_ns = time.perf_counter_ns()
    time.sleep(SERVICE_S)
    while STALL and os.path.exists(STALL):
        time.sleep(LOOK_S)
    body = b"%d\n" % (time.perf_counter_ns() - began_ns)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
