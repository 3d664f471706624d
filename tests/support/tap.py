"""A relay on loopback that keeps every byte of both sides, and a client that says one thing and listens to the end."""

import asyncio
import contextlib
import errno
from dataclasses import dataclass, field

from support.address import Address
from support.patience import PATIENCE_S

READ_BYTES = 65536
AT_ONCE = 16
"""Connections that are asked at the same time."""


@dataclass
class Talk:
    """One connection: what was said to the server, and what it said."""

    asked: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)


class Tap:
    """Stands before a server. Each connection to it gets a connection of its own to the server, with the same bytes."""

    def __init__(self, server: Address) -> None:
        self._server = server
        self._relays: set[asyncio.Task[None]] = set()
        self.talks: list[Talk] = []

    async def open(self) -> Address:
        self._listener = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return Address(*self._listener.sockets[0].getsockname())

    async def close(self) -> None:
        """Take no more connections, and wait until the last has ended on both sides."""
        self._listener.close()
        await asyncio.wait_for(asyncio.gather(*self._relays), PATIENCE_S)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._relays.add(task)
        talk = Talk()
        self.talks.append(talk)
        to_server = await asyncio.open_connection(self._server.host, self._server.port)
        try:
            await asyncio.gather(_relay(reader, to_server[1], talk.asked), _relay(to_server[0], writer, talk.answered))
        finally:
            for end in (writer, to_server[1]):
                await _closed(end)


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray) -> None:
    """Pass on all that comes, and its end. If the receiver hears no more, do not wait for it, and go on recording."""
    hears = True
    with contextlib.suppress(ConnectionError):
        while part := await reader.read(READ_BYTES):
            record += part
            if hears:
                hears = await _written(writer, part)
    if hears:
        _end(writer)


async def _written(writer: asyncio.StreamWriter, part: bytes) -> bool:
    try:
        writer.write(part)
        await writer.drain()
    except ConnectionError:
        return False
    return True


def _end(writer: asyncio.StreamWriter) -> None:
    """No more comes. Where the other side has reset the connection shutdown(2) says ENOTCONN."""
    try:
        writer.write_eof()
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def ask_all(address: Address, said: list[bytes]) -> tuple[list[Talk], dict[int, list[int]]]:
    """Says each on a connection of its own, then that no more comes, and hears it out. Also which of them a
    client said, by its port."""
    places = asyncio.Semaphore(AT_ONCE)
    by_port: dict[int, list[int]] = {}

    async def ask(number: int) -> Talk:
        async with places:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            by_port.setdefault(writer.get_extra_info("sockname")[1], []).append(number)
            talk = Talk(bytearray(said[number]))
            try:
                await asyncio.wait_for(_say(reader, writer, talk), PATIENCE_S)
            except TimeoutError:
                raise AssertionError(f"no end within {PATIENCE_S:.0f} s after {said[number]!r}; got {talk}") from None
            finally:
                await _closed(writer)
            return talk

    return await asyncio.gather(*(ask(number) for number in range(len(said)))), by_port


async def _say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, talk: Talk) -> None:
    """Send in two parts, which may arrive apart. A client that is refused early may be reset while it still sends."""
    half = len(talk.asked) // 2
    with contextlib.suppress(ConnectionError):
        writer.write(talk.asked[:half])
        writer.write(talk.asked[half:])
        _end(writer)
    with contextlib.suppress(ConnectionError):
        while part := await reader.read(READ_BYTES):
            talk.answered += part
