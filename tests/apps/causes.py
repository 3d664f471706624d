"""Requests that compute and sleep for as long as they are asked to, so that a test knows where their time goes."""

import threading
import time
from collections.abc import Iterable
from contextlib import nullcontext
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIEnvironment

POOL = threading.BoundedSemaphore(4)
"""The connections to a database that each worker has."""


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """`?cpu_ms=2&sleep_ms=4&rounds=5` computes and sleeps five times; with `&pool=1` it sleeps with a connection."""
    asked = {name: int(values[0]) for name, values in parse_qs(environ["QUERY_STRING"]).items()}
    for _ in range(asked.get("rounds", 1)):
        compute(asked.get("cpu_ms", 0) / 1000)
        if sleep_ms := asked.get("sleep_ms", 0):
            with POOL if asked.get("pool") else nullcontext():
                time.sleep(sleep_ms / 1000)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"done"]


def compute(cpu_s: float) -> None:
    """Keep the GIL busy until this thread has had a core for so long."""
    until_s = time.thread_time() + cpu_s
    while time.thread_time() < until_s:
        pass
