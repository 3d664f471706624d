"""A client of HTTP/2 without TLS: several requests at once on one connection, and whatever else a test wants to send.

Frames are made and read by the h2 package, which holds the server to RFC 9113; a test that breaks the rules writes
frames of its own (`send`).
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings

from support.address import Address
from support.patience import PATIENCE_S

READ_BYTES = 65_536
FRAME_HEAD_BYTES = 9
PING, ACK = 6, 1
LAST_OF_ALL = 2**31 - 1
"""The last stream that a server names in GOAWAY when it begins to leave, before it knows which one that will be."""

GET, POST = b"\x82\x84\x86\x01\x01a", b"\x83\x84\x86\x01\x01a"
"""Heads of / at the authority a, by HPACK's static table (RFC 7541 appendix A). They put nothing into the other one."""

Fields = Iterable[tuple[str, str]]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """RFC 9113 section 4.1."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""A client begins with it, and with its settings (RFC 9113 section 3.4)."""


def setting(name: int, value: int) -> bytes:
    """A frame of settings with one of them (RFC 9113 section 6.5)."""
    return frame(4, 0, 0, struct.pack(">HI", name, value))


@dataclass
class Answer:
    """The frames of one stream, as an answer."""

    status: int = 0
    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    interim: list[tuple[int, list[tuple[str, str]]]] = field(default_factory=list)
    trailers: list[tuple[str, str]] | None = None
    is_over: bool = False
    reset: int | None = None
    """The reason, if it was."""

    def header(self, name: str) -> str | None:
        """The value of a field that may come once at most."""
        values = [value for known, value in self.fields if known == name]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    @property
    def text(self) -> str:
        return self.body.decode()


class Talk:
    """One connection, or what goes over `sock`.

    It takes what it is sent, unless it `is_slow`: then its windows stay as they are. It answers to PING, unless it
    `is_deaf`.
    """

    def __init__(
        self,
        address: Address,
        is_slow: bool = False,
        is_deaf: bool = False,
        settings: dict[int, int] | None = None,
        sock: socket.socket | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> None:
        self.sock: socket.socket = sock or address.connect(timeout_s)
        self.is_deaf = is_deaf
        self.pause_s = 0.0
        """Before it reads again."""
        self.answers: dict[int, Answer] = {}
        self.events: list[Any] = []
        self.goodbye: h2.events.ConnectionTerminated | None = None
        self.is_slow = is_slow
        self._came = b""
        config = h2.config.H2Configuration(client_side=True, header_encoding="latin-1")
        self.frames = h2.connection.H2Connection(config)
        if settings:
            values = self.frames.local_settings
            self.frames.local_settings = h2.settings.Settings(client=True, initial_values={**values, **settings})
        self.frames.initiate_connection()
        self.flush()

    def __enter__(self) -> "Talk":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        """These bytes, whatever they are."""
        self.sock.sendall(data)

    def flush(self) -> None:
        if data := self.frames.data_to_send():
            self.sock.sendall(data)

    def begin(
        self, path: str, *fields: tuple[str, str], method: str = "GET", host: str = "test", ends: bool = True
    ) -> int:
        """Sends a head; gives the number of its stream."""
        number = self.frames.get_next_available_stream_id()
        pseudo = [(":method", method), (":scheme", "http"), (":authority", host), (":path", path)]
        pseudo += [field for field in fields if field[0].startswith(":")]
        ordinary = [field for field in fields if not field[0].startswith(":")]
        self.frames.send_headers(number, [*pseudo, *ordinary], end_stream=ends)
        self.answers[number] = Answer()
        self.flush()
        return number

    def say(self, number: int, body: bytes | memoryview, ends: bool = True) -> None:
        """Sends a body, as far and as fast as the server takes it."""
        rest = memoryview(body)
        while rest:
            room = min(self.frames.local_flow_control_window(number), self.frames.max_outbound_frame_size)
            if room == 0:
                self.hear_on()
                continue
            self.frames.send_data(number, bytes(rest[:room]))
            rest = rest[room:]
            self.flush()
        if ends:
            self.frames.end_stream(number)
            self.flush()

    def reset(self, number: int, reason: int = 8) -> None:
        self.frames.reset_stream(number, reason)
        self.flush()

    def ping(self) -> None:
        """Wait until the server has read all that it was sent."""
        self.events.clear()
        self.frames.ping(b"are you?")
        self.flush()
        self.until(lambda: any(isinstance(event, h2.events.PingAckReceived) for event in self.events))

    def get(self, path: str, *fields: tuple[str, str], **options: Any) -> Answer:
        return self.answer(self.begin(path, *fields, **options))

    def post(self, path: str, body: bytes, *fields: tuple[str, str]) -> Answer:
        number = self.begin(path, *fields, method="POST", ends=False)
        self.say(number, body)
        return self.answer(number)

    def answer(self, number: int) -> Answer:
        """The whole answer on a stream."""
        answer = self.answers[number]
        self.until(lambda: answer.is_over or answer.reset is not None)
        return answer

    def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.hear_on()

    def hear_on(self) -> None:
        if not self.hear():
            raise ConnectionAbortedError("the connection has ended")

    def hear(self) -> bool:
        """Reads what comes next; false at the end of the connection."""
        time.sleep(self.pause_s)
        data = self.sock.recv(READ_BYTES)
        self._came += data
        while len(self._came) >= (end := FRAME_HEAD_BYTES + int.from_bytes(self._came[:3])):
            frame, self._came = self._came[:end], self._came[end:]
            if self.is_deaf and frame[3] == PING and not frame[4] & ACK:
                continue
            for event in self.frames.receive_data(frame):
                self.events.append(event)
                self._take(event)
            # With a GOAWAY h2 throws away what waits.
            self.flush_if_there()
        return bool(data)

    def flush_if_there(self) -> None:
        """Send frames to a server that may have left."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.flush()

    def until_something_comes(self) -> None:
        """Wait for a byte, and leave it in the socket."""
        self.sock.recv(1, socket.MSG_PEEK)

    def goodbyes(self) -> list[int]:
        """The last stream that each GOAWAY has named."""
        told = [event for event in self.events if isinstance(event, h2.events.ConnectionTerminated)]
        return [event.last_stream_id for event in told]

    def end(self) -> None:
        """Reads to the end of the connection."""
        with contextlib.suppress(ConnectionResetError):
            while self.hear():
                pass

    def _take(self, event: Any) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goodbye = event
            # h2 takes the connection for ended by it, though streams go on (RFC 9113 section 6.8).
            self.frames.state_machine.state = h2.connection.ConnectionState.CLIENT_OPEN
            return
        answer = self.answers.get(getattr(event, "stream_id", None) or 0)
        if answer is None:
            return
        if isinstance(event, h2.events.ResponseReceived):
            answer.fields = [(str(name), str(value)) for name, value in event.headers]
            answer.status = int(answer.header(":status") or 0)
        elif isinstance(event, h2.events.InformationalResponseReceived):
            fields = [(str(name), str(value)) for name, value in event.headers]
            answer.interim.append((int(dict(fields)[":status"]), fields[1:]))
        elif isinstance(event, h2.events.DataReceived):
            answer.body += event.data
            if not self.is_slow:
                self.frames.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.TrailersReceived):
            answer.trailers = [(str(name), str(value)) for name, value in event.headers]
        elif isinstance(event, h2.events.StreamEnded):
            answer.is_over = True
        elif isinstance(event, h2.events.StreamReset):
            answer.reset = int(event.error_code)
