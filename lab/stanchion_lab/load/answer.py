"""The answer to one request, read as it comes: where it ends, and what it says (RFC 9112 sections 6 and 7)."""

HEAD_BYTES_MAX = 1 << 16
LINE_BYTES_MAX = 1 << 12

_HEAD, _LENGTH, _CHUNKS, _TRAILERS, _CLOSE, _WHOLE = range(6)


class Malformed(Exception):
    """It is no HTTP."""


class Answer:
    """Feed it until it is whole. The body is counted and thrown away."""

    __slots__ = ("_left", "_rest", "_state", "keeps", "status", "worker")

    def __init__(self) -> None:
        self.status = 0
        self.worker = ""
        """The value of its X-Worker field."""
        self.keeps = False
        """Whether another request may follow on the connection."""
        self._state = _HEAD
        self._rest = b""
        """Bytes that have come and are incomplete: part of a head, or of a line between chunks."""
        self._left = 0
        """Bytes to come, of the body or of the chunk with its CRLF."""

    def feed(self, data: bytes) -> bool:
        """Whether it is whole now."""
        data = self._rest + data if self._rest else data
        self._rest = b""
        if self._state == _HEAD:
            data = self._head(data)
        if self._state == _LENGTH:
            self._left -= len(data)
            if self._left <= 0:
                self._finish(extra=self._left < 0)
        elif self._state in (_CHUNKS, _TRAILERS):
            self._chunks(data)
        return self._state == _WHOLE

    def end(self) -> bool:
        """The server closed: whether the answer is whole, as one without a length is (RFC 9112 section 6.3, item 8)."""
        return self._state in (_CLOSE, _WHOLE)

    def _head(self, data: bytes) -> bytes:
        """Read the head, if it is all there; what follows it."""
        while True:
            head, end, following = data.partition(b"\r\n\r\n")
            if not end:
                if len(data) > HEAD_BYTES_MAX:
                    raise Malformed("a head without an end")
                self._rest = data
                return b""
            if not head.startswith(b"HTTP/1.") or not head[9:12].isdigit():
                raise Malformed("no status line")
            self.status = int(head[9:12])
            if self.status >= 200:
                break
            # An interim answer: the real one follows (RFC 9110 section 15.2).
            data = following
        lower = head.lower()
        connection = _field(lower, head, b"connection").lower()
        self.keeps = connection != b"close" if head.startswith(b"HTTP/1.1") else connection == b"keep-alive"
        self.worker = _field(lower, head, b"x-worker").decode("latin-1")
        if self.status in (204, 304):
            self._finish(extra=bool(following))
        elif b"chunked" in _field(lower, head, b"transfer-encoding").lower():
            self._state = _CHUNKS
        elif length := _field(lower, head, b"content-length"):
            if not length.isdigit():
                raise Malformed("Content-Length is no number")
            self._state, self._left = _LENGTH, int(length)
        else:
            self._state, self.keeps = _CLOSE, False
        return following

    def _chunks(self, data: bytes) -> None:
        at = 0
        while True:
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
            end = data.find(b"\r\n", at)
            if end < 0:
                self._rest = data[at:]
                if len(self._rest) > LINE_BYTES_MAX:
                    raise Malformed("a line without an end")
                return
            line, at = data[at:end], end + 2
            if self._state == _TRAILERS:
                if not line:
                    self._finish(extra=at < len(data))
                    return
            else:
                try:
                    size = int(line.partition(b";")[0], 16)
                except ValueError as error:
                    raise Malformed("no size of a chunk") from error
                if size < 0:
                    raise Malformed("a chunk of less than nothing")
                if size:
                    self._left = size + 2
                else:
                    self._state = _TRAILERS

    def _finish(self, extra: bool) -> None:
        self._state = _WHOLE
        # Bytes beyond the answer make the connection useless.
        self.keeps = self.keeps and not extra


def _field(lower: bytes, head: bytes, name: bytes) -> bytes:
    """The value of a field of the head; empty where it is missing."""
    name = b"\r\n" + name + b":"
    at = lower.find(name)
    if at < 0:
        return b""
    at += len(name)
    end = head.find(b"\r\n", at)
    return head[at : end if end >= 0 else None].strip()
