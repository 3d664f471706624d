"""Files that hold back what the app writes: one open since the import, one since a request, both in $HELD_BACK.

An object of the module announces when Python takes it apart.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce

FOLDER = Path(os.environ["HELD_BACK"])

since_import = (FOLDER / "since import").open("w")
since_request = []


class Announcing:
    def __del__(self) -> None:
        announce("taken apart")


announcing = Announcing()


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    since_import.write("written")
    since_request.append((FOLDER / "since request").open("wb"))
    since_request[-1].write(b"written")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"begun"]
