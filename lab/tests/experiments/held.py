"""An app that keeps /held until there is a file `open` in the trial's directory: so the worker takes one request, and
only one, however slow the machine is."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPEN = Path("open")


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    while environ["PATH_INFO"] == "/held" and not OPEN.exists():
        time.sleep(0.01)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"ok"]
