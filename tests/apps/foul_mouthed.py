"""Says FOUL, an environment variable, where an app gets to say something: with BOOT set at import, else in what looks
like its worker's stacks.
"""

import os
import threading
import time
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

FOUL = os.environ["FOUL"]

WRITES_S = 20


def scribble() -> None:
    """Among the stacks that the server has every worker write, to a memfd that all of them have open."""
    names = [name for name in os.listdir("/proc/self/fd") if name.isdigit()]
    (dumps,) = (int(name) for name in names if "stanchion-dumps" in link(f"/proc/self/fd/{name}"))
    line = f"  File {FOUL}\n".encode() + b"\xff\xfe\n"
    until = time.monotonic() + WRITES_S
    while time.monotonic() < until:
        os.write(dumps, line)
        time.sleep(0.001)


def link(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    threading.Thread(target=scribble, daemon=True).start()
    time.sleep(WRITES_S)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"late\n"]


if "BOOT" in os.environ:
    raise ValueError(FOUL + "\nof two lines" + FOUL)
