"""Long answers whose bytes show at which offset they stand: /whole/BYTES in one piece, with its length in the head,
/iterated/BYTES/EACH in pieces without it, /measured/BYTES/EACH in pieces with it. With ?wait it waits for a pass."""

import os
import struct
from collections.abc import Iterable, Iterator
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass

LONGEST_BYTES = 4 << 20
PATTERN = b"".join(struct.pack(">I", number) for number in range(1 << 20))


def pieces(length: int, each: int) -> Iterator[bytes]:
    for start in range(0, length, each):
        yield PATTERN[start : min(start + each, length)]


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    kind, length, *each = environ["PATH_INFO"].strip("/").split("/")
    fields = [("Content-Type", "application/octet-stream")]
    if kind != "iterated":
        fields.append(("Content-Length", length))
    if environ["QUERY_STRING"] == "wait":
        announce(str(os.getpid()))
        wait_for_pass()
    start_response("200 OK", fields)
    if kind == "whole":
        return [PATTERN[: int(length)]]
    return pieces(int(length), int(each[0]))
