"""Names the modules that are loaded in the worker; imports nothing for it."""

from __future__ import annotations

import sys
from collections.abc import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return ["\n".join(sys.modules).encode()]
