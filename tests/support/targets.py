"""Targets with one byte that is not usual, in their path or in their query."""

from dataclasses import dataclass

from support.address import Address
from support.wire import BrokenOff, Response, Wire

FRAGMENT = ord("#")
"""Is cut off with what follows it (RFC 9110 section 4.2.5: no client sends it)."""
TAKEN = [*range(0x21, FRAGMENT), *range(FRAGMENT + 1, 0x7F), *range(0x80, 0x100)]
"""They end no word and no line of a request."""
REFUSED = [*range(0x21), 0x7F]
PLACES = ("path", "query")


def target(byte: int, place: str) -> bytes:
    return b"/a%bz" % bytes([byte]) if place == "path" else b"/a?b%bz" % bytes([byte])


def head(target: bytes, *fields: bytes) -> bytes:
    return b"\r\n".join([b"GET %b HTTP/1.1" % target, b"Host: test", *fields, b"", b""])


@dataclass
class Seen:
    """A target as a WSGI app saw it (`echo:target`)."""

    raw: bytes
    path: bytes
    query: bytes


@dataclass
class SeenByAsgi:
    path: bytes
    raw_path: bytes
    query: bytes


def seen(response: Response) -> Seen:
    told = {name: bytes.fromhex(digits) for name, digits in response.json().items()}
    return Seen(told["RAW_URI"], told["PATH_INFO"], told["QUERY_STRING"])


def seen_by_asgi(response: Response) -> SeenByAsgi:
    told = {name: bytes.fromhex(digits) for name, digits in response.json().items()}
    return SeenByAsgi(told["path"], told["raw_path"], told["query_string"])


def ask_once(address: Address, target: bytes) -> Response | None:
    """On a connection of its own; None if that ends without an answer."""
    with Wire.connect(address) as wire:
        wire.send(head(target, b"Connection: close"))
        try:
            return wire.response()
        except (BrokenOff, ConnectionResetError):
            return None
