"""A client of WebSockets by wsproto, which shares no code with the server: it says what was heard, event by event."""

import contextlib
from collections.abc import Callable
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from support.counts import Counts
from support.server import Server
from support.wire import BrokenOff, Response, Wire, request

HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}

END = "end"
"""The connection has ended, after a close frame or without one."""


class WebSocket:
    """One connection. It hears a text, bytes, `(code, reason)` of a close frame, `("pong", bytes)`, or END."""

    def __init__(
        self,
        server: Server | None,
        path: str = "/",
        subprotocols: tuple[str, ...] = (),
        receive_buffer_bytes: int | None = None,
        wire: Wire | None = None,
    ) -> None:
        if wire is None:
            assert server, "without a wire there must be a server to connect to"
            wire = Wire(server.addresses[0].connect(receive_buffer_bytes=receive_buffer_bytes))
        self.wire = wire
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._heard: list[Any] = []
        self._message: str | bytes | bytearray = ""
        self._has_ended = False
        self.answers_pings = True
        self.answers_closes = True
        self.status = 0
        self.body = b""
        try:
            self.say(Request(host="test", target=path, subprotocols=list(subprotocols)))
            while not self._heard:
                self._read()
            if self._heard[0] == END:
                raise BrokenOff(None, "before the handshake was answered")
        except BaseException:
            self.drop()
            raise
        self.status, self.subprotocol, self.headers = self._heard.pop(0)

    def say(self, event: Event) -> None:
        self.wire.send(self._connection.send(event))

    def text(self, text: str) -> None:
        self.say(TextMessage(text))

    def bytes(self, data: bytes) -> None:
        self.say(BytesMessage(data))

    def close(self, code: int = 1000, reason: str | None = None) -> None:
        self.say(CloseConnection(code, reason))

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it, by what was read: that may be more than was heard."""
        return self._connection.state is ConnectionState.OPEN

    def hear(self) -> Any:
        """The next message, or END."""
        while not self._heard:
            if self._has_ended:
                return END
            self._read()
        return self._heard.pop(0)

    def until_end(self) -> list[Any]:
        """All that comes until the connection ends."""
        heard = []
        while (one := self.hear()) != END:
            heard.append(one)
        return heard

    def drop(self) -> None:
        """End the connection without a word."""
        self.wire.close()

    def _read(self) -> None:
        data = self.wire.sock.recv(1 << 16)
        if not data:
            self._has_ended = True
            self._heard.append(END)
            return
        self._connection.receive_data(data)
        for event in self._connection.events():
            self._take(event)

    def _take(self, event: Event) -> None:
        if isinstance(event, AcceptConnection):
            self._heard.append((101, event.subprotocol, dict(event.extra_headers)))
        elif isinstance(event, RejectConnection):
            self.status = event.status_code
            self._rejected = (event.status_code, None, dict(event.headers))
            if not event.has_body:
                self._heard.append(self._rejected)
        elif isinstance(event, RejectData):
            self.body += event.data
            if event.body_finished:
                self._heard.append(self._rejected)
        elif isinstance(event, TextMessage | BytesMessage):
            self._message = self._message + event.data if self._message else event.data
            if event.message_finished:
                whole = self._message
                self._heard.append(whole if isinstance(whole, str) else bytes(whole))
                self._message = ""
        elif isinstance(event, CloseConnection):
            self._heard.append((int(event.code), event.reason or ""))
            if self.answers_closes:
                with contextlib.suppress(Exception):  # the side that closed first has sent its close frame already
                    self.say(event.response())
        elif isinstance(event, Ping):
            if self.answers_pings:
                self.say(event.response())
            self._heard.append(("ping", bytes(event.payload)))
        elif isinstance(event, Pong):
            self._heard.append(("pong", bytes(event.payload)))


Open = Callable[..., WebSocket]
Ask = Callable[..., Response]


def seen(server: Server) -> list[Any]:
    """The events that the app saw; it has one worker."""
    with server.connect() as wire:
        wire.send(request("GET", "/seen"))
        saw: list[Any] = wire.response().json()["seen"]
        return saw


def sessions(counts: Counts) -> dict[str, int]:
    """The counts of the ways in which sessions have begun and ended."""
    prefix = "sessions_"
    events = counts.events()
    return {name.removeprefix(prefix): count for name, count in events.items() if name.startswith(prefix) and count}
