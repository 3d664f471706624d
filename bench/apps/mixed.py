"""A fast and a slow page: / blocks for 1 ms and /slow for 200 ms. Answers how long it really took, in ns."""

import time
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

FAST_S = 0.001
SLOW_S = 0.200


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    began_ns = time.perf_counter_ns()
    time.sleep(SLOW_S if environ["PATH_INFO"] == "/slow" else FAST_S)
    body = b"%d\n" % (time.perf_counter_ns() - began_ns)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
