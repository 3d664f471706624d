"""Figures from the servers' logs: a status for each request, and nginx's errors by errno."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from stanchion_lab.scenario import FRONTS, Server
from stanchion_lab.servers import KINDS

REQUEST = re.compile(rb' HTTP/\d(?:\.\d)?" (\d{3})\b')
"""Common to the formats of Apache, nginx, gunicorn, stanchion, rack and the rest."""
NGINX_ERROR = re.compile(rb"\[(?:error|crit|alert|emerg)\] [^(]*(?:\(\)[^(]*)?\((\d+): ")
"""`... [error] ...: *5 connect() to unix:app.sock failed (11: Resource temporarily unavailable) while ...`: see
errno(3). With 110 the upstream has timed out."""
REQUEST_TEXT = re.compile(REQUEST.pattern.decode())
RETRIED = re.compile(rb" (?:retries=\+?[1-9]|attempts=(?:[2-9]|\d\d)|upstream_status=[\d-]+, )")
"""Of a line of the log of HAProxy, Envoy, nginx, as the lab has them write it: it took more than one try."""
CLOSED_EARLY = b"upstream prematurely closed connection"


def figures(name: str, server: Server, directory: Path) -> dict[str, float]:
    """`log.NAME.requests`, `log.NAME.status.NNN`; of a front `log.NAME.retried`, those that it tried more than once; of
    nginx also `log.NAME.errno.NN` and `log.NAME.closed_early`, where
    the server behind it was gone before its answer was whole. Nothing of a server that logs no requests."""
    counts: Counter[str] = Counter()
    for line in _lines(directory / f"{name}.{KINDS[server.kind].requests}"):
        if found := REQUEST.search(line):
            counts["requests"] += 1
            counts[f"status.{found[1].decode()}"] += 1
            if server.kind in FRONTS and RETRIED.search(line):
                counts["retried"] += 1
    if server.kind == "nginx":
        for line in _lines(directory / f"{name}.log"):
            # The text after `client:` comes from the client, which may write anything.
            if found := NGINX_ERROR.search(line.partition(b", client: ")[0]):
                counts[f"errno.{found[1].decode()}"] += 1
            counts["closed_early"] += CLOSED_EARLY in line
    return {f"log.{name}.{key}": value for key, value in counts.items()}


def _lines(path: Path) -> Iterator[bytes]:
    if path.exists():
        with path.open("rb") as log:
            yield from log
