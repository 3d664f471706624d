"""One connection of HTTP/2, and as many streams on it at a time as are asked for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions

FRAME_HEAD_BYTES = 9


@dataclass
class Stream:
    """A request, and what has come of its answer."""

    whole: asyncio.Future[bytes]
    status: int = 0
    body: bytearray = field(default_factory=bytearray)

    def end(self) -> None:
        if self.status == 200 and not self.whole.done():
            self.whole.set_result(bytes(self.body))
        elif self.status != 200:
            self.fail(f"status {self.status}")

    def fail(self, why: str) -> None:
        if not self.whole.done():
            self.whole.set_exception(ConnectionError(why))


class Connection(asyncio.Protocol):
    """It is not opened again where the server closed it: all that are asked for then fail."""

    def __init__(self, scheme: str = "http") -> None:
        self._scheme = scheme
        self._frames = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="ascii"))
        self._streams: dict[int, Stream] = {}
        self._transport: asyncio.Transport | None = None
        self._over = asyncio.Event()
        # By our leave or by the server's: there are no further streams.
        self._is_left = False
        self._came = b""

    async def get(self, path: str) -> bytes:
        number = self._frames.get_next_available_stream_id()
        stream = self._streams[number] = Stream(asyncio.get_running_loop().create_future())
        head = [(":method", "GET"), (":scheme", self._scheme), (":authority", "bench"), (":path", path)]
        try:
            self._frames.send_headers(number, head, end_stream=True)
            self._flush()
            return await stream.whole
        except h2.exceptions.ProtocolError as error:
            raise ConnectionError(str(error)) from error
        finally:
            del self._streams[number]

    def close(self) -> None:
        """One stream's failure is none of the connection."""

    @property
    def is_over(self) -> bool:
        return self._is_left or self._over.is_set()

    def leave(self) -> None:
        self._is_left = True
        if self._transport:
            self._transport.close()

    async def end(self) -> None:
        self.leave()
        await self._over.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._frames.initiate_connection()
        self._flush()

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._over.set()
        for stream in self._streams.values():
            stream.fail("the connection has ended")

    def data_received(self, data: bytes) -> None:
        # A transport that closes gives what comes meanwhile, and takes nothing more.
        if self._transport is None or self._transport.is_closing():
            return
        self._came += data
        # Frame by frame, for behind a GOAWAY h2 takes no more of the same bytes.
        while len(self._came) >= (end := FRAME_HEAD_BYTES + int.from_bytes(self._came[:3])):
            frame, self._came = self._came[:end], self._came[end:]
            for event in self._frames.receive_data(frame):
                self._take(event)
        self._flush()

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self._is_left = True
            # For h2 all is over with it, though streams go on (RFC 9113 section 6.8).
            self._frames.state_machine.state = h2.connection.ConnectionState.CLIENT_OPEN
        if isinstance(event, h2.events.DataReceived):
            self._frames.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        if stream is None:
            return
        if isinstance(event, h2.events.ResponseReceived):
            stream.status = int(dict(event.headers)[":status"])
        elif isinstance(event, h2.events.DataReceived):
            stream.body += event.data
        elif isinstance(event, h2.events.StreamEnded):
            stream.end()
        elif isinstance(event, h2.events.StreamReset):
            stream.fail(f"reset: {event.error_code}")

    def _flush(self) -> None:
        data = self._frames.data_to_send()
        if self._transport is None:
            raise ConnectionError("the connection has ended")
        if data:
            self._transport.write(data)


async def connect(port: int, scheme: str = "http", **how: Any) -> Connection:
    """`how` is what asyncio's create_connection takes besides."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(scheme), "127.0.0.1", port, **how)
    return connection


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """In clear text."""
    connection = await connect(port)
    try:
        yield connection
    finally:
        await connection.end()
