"""An app that waits, as for a database: SECONDS each, then a page of BYTES without a Content-Length."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

SECONDS = float(os.environ.get("SECONDS", "2"))
PAGE = b"x" * int(os.environ.get("BYTES", "2"))


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
    time.sleep(SECONDS)
    start_response("200 OK", [("Content-Type", "text/plain")])
    yield PAGE
