"""A client of TLS whose messages and records are twisted on their way, by tlslite-ng."""

import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from support.address import Address
from support.tls import NAME
from support.tls_raw import APPLICATION
from support.tlslite import (
    AlertDescription,
    BaseTLSException,
    HandshakeSettings,
    Message,
    TLSConnection,
    TLSLocalAlert,
    TLSRemoteAlert,
)
from support.wire import request

Messages = Callable[[int, int, bytes], Iterable[tuple[int, bytes]]]
"""The messages to send in place of one, before encryption, by its number from 0, its content type and its bytes."""
Records = Callable[[int, bytes], Iterable[bytes]]
"""The records to send in place of one, by its number from 0 and its bytes."""


class Socket:
    """A socket that gives each record that goes out to a function."""

    def __init__(self, sock: socket.socket, twist: Records) -> None:
        self._sock = sock
        self._twist = twist
        self._number = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendall(self, data: bytes) -> None:
        data = bytes(data)
        while data:
            end = 5 + int.from_bytes(data[3:5], "big")
            for said in self._twist(self._number, data[:end]):
                self._sock.sendall(said)
            self._number += 1
            data = data[end:]

    def send(self, data: bytes) -> int:
        self.sendall(data)
        return len(data)


class Twisted(TLSConnection):  # type: ignore[misc]
    """Sends messages as a function has them."""

    def __init__(self, sock: Any, twist: Messages) -> None:
        super().__init__(sock)
        self._twist = twist
        self._number = 0

    def _sendMsg(self, msg: Any, *_: object, **__: object) -> Iterator[Any]:  # noqa: N802
        data = bytes(msg.write())
        said = self._twist(self._number, msg.contentType, data)
        self._number += 1
        for kind, payload in said:
            # Send it as one record, so that a payload that is too long for one stays so.
            if kind == 22:
                self._handshake_hash.update(bytearray(payload))
            yield from self._sendMsgThroughSocket(Message(kind, bytearray(payload)))


def straight_message(number: int, kind: int, data: bytes) -> Iterable[tuple[int, bytes]]:
    return [(kind, data[at : at + 0x4000]) for at in range(0, len(data), 0x4000)]


def straight_record(number: int, data: bytes) -> Iterable[bytes]:
    return [data]


def settings(version: tuple[int, int]) -> Any:
    settings = HandshakeSettings()
    settings.minVersion = settings.maxVersion = version
    # One group, whose share is in the first hello.
    settings.eccCurves = settings.keyShares = ["secp256r1"]
    settings.use_heartbeat_extension = False
    return settings


GET = request("GET", "/text/plain?len=5")

Then = Callable[["Client"], None]
"""A client does this after its handshake, before it asks."""


@dataclass
class Client:
    """A connection, and all that came of it."""

    tls: Any
    plain: socket.socket

    def say(self, *records: tuple[int, bytes]) -> None:
        """Encrypted records of these types and bytes, at once; no hash has them."""
        buffered = self.tls.sock
        buffered.buffer_writes = True
        for kind, payload in records:
            for _ in self.tls._sendMsgThroughSocket(Message(kind, bytearray(payload))):
                raise AssertionError("the socket blocks")
        buffered.flush()
        buffered.buffer_writes = False

    def say_inner(self, plaintext: bytes) -> None:
        """A record of TLS 1.3 of just this plaintext, whose last byte that is not zero is its content type."""
        layer = self.tls._recordLayer
        header = b"\x17\x03\x03" + (len(plaintext) + layer._writeState.encContext.tagLength).to_bytes(2, "big")
        state = layer._writeState
        nonce = layer._getNonce(state, state.getSeqNumBytes())
        sealed = state.encContext.seal(nonce, bytearray(plaintext), bytearray(header))
        self.plain.sendall(header + bytes(sealed))

    def ask(self) -> str:
        """ "answered", or why not."""
        self.say((APPLICATION, GET))
        heard = b""
        while b"\r\n\r\n" not in heard:
            some = bytes(self.tls.read(max=1 << 14, min=1))
            if not some:
                return "closed"
            heard += some
        assert heard.startswith(b"HTTP/1.1 200 "), heard
        return "answered"


def outcome(
    address: Address,
    version: tuple[int, int],
    messages: Messages = straight_message,
    records: Records = straight_record,
    then: Then = lambda client: None,
    session: Any = None,
) -> str:
    """ "answered" (or "resumed"), the name of the server's alert, or "closed" if it ends without one."""
    with address.connect() as plain:
        tls = Twisted(Socket(plain, records), messages)
        client = Client(tls, plain)
        try:
            tls.handshakeClientCert(serverName=NAME, settings=settings(version), session=session)
            then(client)
            said = client.ask()
            return "resumed" if tls.resumed and said == "answered" else said
        except (OSError, BaseTLSException, ValueError) as error:
            return said_of(error) or last_words(client)


def said_of(error: Exception) -> str:
    if isinstance(error, TLSRemoteAlert):
        return str(AlertDescription.toRepr(error.description) or error.description)
    assert not isinstance(error, TLSLocalAlert), f"the client found fault: {error}"
    return ""


def last_words(client: Client) -> str:
    """The alert that the server sent before the client failed, or "closed"."""
    try:
        for result in client.tls._getMsg((23, 21), None):
            if result not in (0, 1):
                break
    except (OSError, BaseTLSException, ValueError) as error:
        return said_of(error) or "closed"
    return "closed"


def session_of(address: Address, version: tuple[int, int]) -> Any:
    """A session, with the tickets that the server has given for it."""
    with address.connect() as plain:
        tls = Twisted(plain, straight_message)
        tls.handshakeClientCert(serverName=NAME, settings=settings(version))
        assert Client(tls, plain).ask() == "answered"
        return tls.session
