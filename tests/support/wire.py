"""A client that sends exactly the bytes it is given and repairs nothing it gets.

The parser holds a server to the letter of RFC 9112: input that a tolerant client would mend (a bare LF, an unknown
chunk extension, two lengths) is `Malformed` here, and an end in the middle is `BrokenOff`, never a short body.
"""

import json
import re
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import pytest

from support.address import Address
from support.patience import PATIENCE_S

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.6.2
STATUS_LINE = re.compile(r"(HTTP/1\.[01]) ([1-5][0-9][0-9]) ([\t -~\x80-\xff]*)")  # RFC 9112 section 4
FIELD_VALUE = re.compile(r"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")  # RFC 9110 section 5.5
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")

LINE_MAX_BYTES = 65536
READ_BYTES = 262_144

Headers = list[tuple[str, str]]


class Malformed(Exception):
    """The server sent something RFC 9112 does not allow."""


@dataclass
class Response:
    """One response; header text is bytes as latin-1, like in PEP 3333."""

    version: str
    status: int
    reason: str
    headers: Headers
    body: bytes = b""
    framing: str = "none"
    """How the end of the body is known: none, length, chunked or close."""
    chunk_sizes: list[int] = field(default_factory=list)
    trailers: Headers = field(default_factory=list)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The value of a field that may come once at most."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    def closes(self) -> bool:
        """Whether the response announces that the connection ends after it."""
        return "close" in [option.strip().lower() for option in (self.header("Connection") or "").split(",")]

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class BrokenOff(Exception):
    """The connection ended in the middle of a response; `response` holds what had come, None if not even a head."""

    def __init__(self, response: Response | None, where: str) -> None:
        super().__init__(f"the connection ended {where}")
        self.response = response


def request(
    method: str,
    target: str,
    headers: Iterable[str] = (),
    body: bytes = b"",
    version: str = "1.1",
    host: str | None = "test",
) -> bytes:
    """A well-formed request; Content-Length is added when there is a body."""
    lines = [f"{method} {target} HTTP/{version}"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines.extend(headers)
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(parts: Iterable[bytes], trailers: bytes = b"", extension: bytes = b"") -> bytes:
    """The chunked coding of `parts` (RFC 9112 section 7.1)."""
    chunks = [b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts]
    return b"".join(chunks) + b"0\r\n" + trailers + b"\r\n"


class Wire:
    """One connection to a server, byte for byte."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()
        self._each = READ_BYTES
        self._pause_s = 0.0

    @classmethod
    def connect(cls, address: Address, timeout_s: float = PATIENCE_S) -> "Wire":
        return cls(address.connect(timeout_s))

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Leave with RST instead of FIN, as a crashed client does (SO_LINGER of zero, socket(7))."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def ask(self, method: str, target: str, *headers: str, body: bytes = b"", version: str = "1.1") -> Response:
        """Send one well-formed request and read its response."""
        self.send(request(method, target, headers, body, version))
        return self.response(method)

    def get(self, target: str, *headers: str, version: str = "1.1") -> Response:
        return self.ask("GET", target, *headers, version=version)

    def post(self, target: str, body: bytes, *headers: str) -> Response:
        return self.ask("POST", target, *headers, body=body)

    def response(self, method: str = "GET") -> Response:
        """The next response, interim ones included; `method` tells whether it may have a body."""
        response = self.head()
        self.read_body(response, method)
        return response

    def torn_response(self) -> Response:
        """The part of the next response that came before the connection ended in the middle of it."""
        with pytest.raises(BrokenOff) as broken:
            self.response()
        assert broken.value.response is not None
        return broken.value.response

    def read_slowly(self, bytes_each: int = READ_BYTES, pause_s: float = 0.0) -> None:
        """Read in such pieces from now on, with a pause before each."""
        self._each, self._pause_s = bytes_each, pause_s

    def head(self) -> Response:
        """Only the head of the next response; `read_body` or `body_bytes` reads on."""
        line = self._line(None, "before the status line")
        found = STATUS_LINE.fullmatch(line)
        if not found:
            raise Malformed(f"status line {line!r}")
        response = Response(found[1], int(found[2]), found[3], [])
        response.headers = self._fields(response)
        return response

    def body_bytes(self, count: int) -> bytes:
        """Exactly `count` raw bytes after a head, whatever the framing."""
        data = bytearray()
        self._take(count, data, None)
        return bytes(data)

    def rest(self) -> bytes:
        """All that still comes before the server closes; b"" for a clean close right here."""
        while self._fill():
            pass
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def closed(self) -> bool:
        """Whether the server closes now, by FIN or by RST, without a byte more."""
        try:
            return self.rest() == b""
        except ConnectionResetError:
            return not self._buffer

    def silent(self, for_s: float) -> bool:
        """Whether nothing comes, not even an end, for a while."""
        if self._buffer:
            return False
        before = self.sock.gettimeout()
        self.sock.settimeout(for_s)
        try:
            self._fill()
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(before)
        return False

    def read_body(self, response: Response, method: str = "GET") -> None:
        if method == "HEAD" or response.status < 200 or response.status in (204, 304):
            return
        body = bytearray()
        try:
            self._take_body(response, body)
        finally:
            response.body = bytes(body)

    def _take_body(self, response: Response, body: bytearray) -> None:
        length = response.header("Content-Length")
        codings = response.all("Transfer-Encoding")
        if codings:
            if length is not None:
                raise Malformed("both Content-Length and Transfer-Encoding (RFC 9112 section 6.2)")
            if [coding.lower() for coding in codings] != ["chunked"]:
                raise Malformed(f"Transfer-Encoding {codings}")
            response.framing = "chunked"
            self._take_chunks(response, body)
        elif length is not None:
            if not length.isascii() or not length.isdigit():
                raise Malformed(f"Content-Length {length!r}")
            response.framing = "length"
            self._take(int(length), body, response)
        else:
            response.framing = "close"
            body += self.rest()

    def _take_chunks(self, response: Response, body: bytearray) -> None:
        while True:
            line = self._line(response, "before the last chunk").encode("latin-1")
            if not CHUNK_SIZE.fullmatch(line):
                raise Malformed(f"chunk size {line!r}")
            size = int(line, 16)
            if size == 0:
                response.trailers = self._fields(response)
                return
            response.chunk_sizes.append(size)
            self._take(size, body, response)
            if self._line(response, "within a chunk"):
                raise Malformed("no CRLF after the data of a chunk")

    def _fields(self, response: Response) -> Headers:
        fields: Headers = []
        while line := self._line(response, "within the header fields"):
            name, colon, value = line.partition(":")
            value = value.strip(" \t")
            if not colon or not TOKEN.fullmatch(name) or not FIELD_VALUE.fullmatch(value):
                raise Malformed(f"header field {line!r}")
            fields.append((name, value))
        return fields

    def _line(self, response: Response | None, where: str) -> str:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > LINE_MAX_BYTES:
                raise Malformed("a line without an end")
            if not self._fill():
                raise BrokenOff(response, where)
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        if not line.endswith(b"\r\n") or b"\r" in line[:-2] or b"\0" in line:
            raise Malformed(f"line {line!r}")
        return line[:-2].decode("latin-1")

    def _take(self, count: int, into: bytearray, response: Response | None) -> None:
        """Move `count` bytes; what there is of them, and then `BrokenOff`, if the server closes before."""
        while count > 0:
            if not self._buffer and not self._fill():
                raise BrokenOff(response, f"{count} bytes before the end of the body")
            part = self._buffer[:count]
            into += part
            del self._buffer[:count]
            count -= len(part)

    def _fill(self) -> int | None:
        """Bytes added, None at the end of the stream."""
        if self._pause_s:
            time.sleep(self._pause_s)
        data = self.sock.recv(self._each)
        self._buffer += data
        return len(data) or None


def ask(address: str, target: str) -> Response:
    """The answer to one request on a connection of its own."""
    with Wire.connect(Address.parse(address)) as wire:
        return wire.get(target)
