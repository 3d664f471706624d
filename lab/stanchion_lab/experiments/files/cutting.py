"""An app that burns CPU in one piece.

The path `/aaa…cd` is tried in each way to cut its a's into ones and twos, and none fits, because of the d: 20 a's take
about a millisecond, two more two and a half times that. cutting.conf has the same expression, and nginx, whose PCRE
backtracks too, takes as long.
"""

import re
from collections.abc import Callable, Iterable

CUT = re.compile("^/(a|aa)+c$")
BODY = b"it cannot be cut\n"


def application(
    environ: dict[str, str], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    status = "404 Not Found" if CUT.match(environ["PATH_INFO"]) else "200 OK"
    start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))])
    return [BODY]
