"""wsgi.file_wrapper in all its ways; the file is $FILE.

Not under the validator, which hides the wrapper from the server.
"""

import gzip
import os
from collections.abc import Iterable
from typing import BinaryIO
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce


class Announcing:
    """A file with a descriptor, a seek position and a close() that can be seen."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner
        self.read = inner.read
        self.fileno = inner.fileno
        self.seek = inner.seek
        self.tell = inner.tell

    def close(self) -> None:
        self._inner.close()
        announce("file closed")


def unpacked(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """The content of a gzip file, whose descriptor leads to other bytes: the packed ones."""
    start_response("200 OK", [("Content-Type", "application/octet-stream")])
    answer: Iterable[bytes] = environ["wsgi.file_wrapper"](gzip.open(os.environ["FILE"]))
    return answer


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    query = {key: int(value[0]) for key, value in parse_qs(environ["QUERY_STRING"]).items()}
    file = Announcing(open(os.environ["FILE"], "rb"))
    file.seek(query.get("offset", 0))
    if "read" in query:
        file.read(query["read"])
    headers = [("Content-Type", "application/octet-stream")]
    if "length" in query:
        headers.append(("Content-Length", str(query["length"])))
    start_response("200 OK", headers)
    answer: Iterable[bytes] = environ["wsgi.file_wrapper"](file, query.get("block", 8192))
    return answer
