"""An app that holds 100 MB of small objects. Answers its process id: / at once, /hold a little later, and
/collect after a garbage collection too.

Small containers and not one block: a collection writes into the header of every container it visits, and so copies the
pages that were shared since the fork, unless they were frozen (gc.freeze, "copy-on-write"). Every long-lived process
collects its oldest generation sooner or later; /collect makes that moment the same for all servers.
"""

import gc
import os
import time
from collections.abc import Iterable
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

BALLAST_BYTES = 100_000_000
# Long enough that requests sent together reach different workers.
HOLD_S = 0.02


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grow(limit_bytes: int) -> list[list[int]]:
    objects: list[list[int]] = []
    while resident_bytes() < limit_bytes:
        objects.extend([number] for number in range(10_000))
    return objects


ballast = grow(resident_bytes() + BALLAST_BYTES)


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/collect":
        gc.collect()
    if environ["PATH_INFO"] != "/":
        time.sleep(HOLD_S)
    body = b"%d\n" % os.getpid()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
