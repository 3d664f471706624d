"""One connection of HTTP/2 in clear text, and as many streams on it at a time as are asked for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.exceptions


@dataclass
class Stream:
    """A request, and what has come of its answer."""

    whole: asyncio.Future[bytes]
    status: int = 0
    body: bytearray = field(default_factory=bytearray)

    def end(self) -> None:
        if self.status == 200:
            self.whole.set_result(bytes(self.body))
        else:
            self.fail(f"status {self.status}")

    def fail(self, why: str) -> None:
        if not self.whole.done():
            self.whole.set_exception(ConnectionError(why))


class Connection(asyncio.Protocol):
    """It is not opened again where the server closed it: all that are asked for then fail."""

    def __init__(self) -> None:
        self._frames = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="ascii"))
        self._streams: dict[int, Stream] = {}
        self._transport: asyncio.Transport | None = None
        self._over = asyncio.Event()

    async def get(self, path: str) -> bytes:
        number = self._frames.get_next_available_stream_id()
        stream = self._streams[number] = Stream(asyncio.get_running_loop().create_future())
        head = [(":method", "GET"), (":scheme", "http"), (":authority", "bench"), (":path", path)]
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

    async def end(self) -> None:
        if self._transport:
            self._transport.close()
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
        for event in self._frames.receive_data(data):
            self._take(event)
        self._flush()

    def _take(self, event: h2.events.Event) -> None:
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


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    try:
        yield connection
    finally:
        await connection.end()
