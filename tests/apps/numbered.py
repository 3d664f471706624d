"""An app for a fleet: it writes down each request that it runs, and answers with what its front has told."""

import json
import os
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """The server's name, and the front's word about client and time. `/hold` waits for a pass."""
    server, target = os.environ["SERVER"], environ["PATH_INFO"]
    line = f"{server} {environ['REQUEST_METHOD']} {target}\n"
    # One write in append mode is never mixed with another's (open(2)).
    with open(os.environ["RUNS"], "ab", buffering=0) as runs:
        runs.write(line.encode())
    if target == "/hold":
        announce(server)
        wait_for_pass()
    told = {
        "server": server,
        "proxy_wait": environ.get("stanchion.proxy_wait"),
        "client": environ.get("HTTP_X_FORWARDED_FOR"),
        "scheme": environ["wsgi.url_scheme"],
        "length": len(environ["wsgi.input"].read()),
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(told).encode()]
