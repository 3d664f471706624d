"""An app that takes its time to boot, as real ones do, and answers the release it was booted with."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

BOOT_S = 0.5
# Long enough that some request is always running.
REQUEST_S = 0.005

time.sleep(BOOT_S)
BODY = Path(os.environ["BENCH_RELEASE"]).read_bytes()


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    time.sleep(REQUEST_S)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))])
    return [BODY]
