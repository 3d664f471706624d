"""Frames of WebSockets (RFC 6455 section 5.2), one by one, and what is compressed in them (RFC 7692)."""

import zlib

from support.websocket import HANDSHAKE
from support.wire import Response, Wire, request

EXTENSIONS = "Sec-WebSocket-Extensions"
OFFER = "permessage-deflate; client_max_window_bits"
TAIL = b"\x00\x00\xff\xff"
FIN, DEFLATED = 0x80, 0x40
CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def deflated(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    whole = stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)
    assert whole.endswith(TAIL)
    return whole.removesuffix(TAIL)


class Raw:
    """A client that sends and hears single frames."""

    def __init__(self, wire: Wire, offer: str | None, path: str = "/") -> None:
        fields = {**HANDSHAKE, **({EXTENSIONS: offer} if offer is not None else {})}
        wire.send(request("GET", path, [f"{name}: {value}" for name, value in fields.items()]))
        self.wire = wire
        self.answer: Response = wire.response()

    def send(self, first: int, payload: bytes) -> None:
        head = bytes([first])
        if len(payload) < 126:
            head += bytes([0x80 | len(payload)])
        elif len(payload) < 1 << 16:
            head += b"\xfe" + len(payload).to_bytes(2, "big")
        else:
            head += b"\xff" + len(payload).to_bytes(8, "big")
        # A key of zeros masks nothing away.
        self.wire.send(head + bytes(4) + payload)

    def frame(self) -> tuple[int, bytes]:
        """Its first byte, and what it holds."""
        first, length = self.wire.body_bytes(2)
        if length > 125:
            length = int.from_bytes(self.wire.body_bytes(2 if length == 126 else 8), "big")
        return first, self.wire.body_bytes(length)

    def message(self) -> tuple[list[int], bytes]:
        """The first byte of each of its frames, and what they hold together."""
        firsts: list[int] = []
        payloads = []
        while not firsts or not firsts[-1] & FIN:
            first, payload = self.frame()
            firsts.append(first)
            payloads.append(payload)
        return firsts, b"".join(payloads)

    def closed(self) -> int:
        """The code of the close frame that comes next, and is answered."""
        first, payload = self.frame()
        assert first == FIN | CLOSE
        self.send(FIN | CLOSE, payload[:2])
        assert self.wire.closed()
        return int.from_bytes(payload[:2], "big")
