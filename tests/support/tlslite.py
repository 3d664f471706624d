"""A client of TLS that can break its rules, by tlslite-ng, which is written in Python and hides nothing."""

import contextlib
import socket
import ssl
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

with warnings.catch_warnings():
    # It imports asyncore where that is still there.
    warnings.simplefilter("ignore", DeprecationWarning)
    from tlslite.api import HandshakeSettings, TLSConnection
from tlslite.constants import AlertDescription, AlertLevel, CipherSuite, KeyUpdateMessageType
from tlslite.errors import BaseTLSException as BaseTLSException
from tlslite.errors import TLSLocalAlert as TLSLocalAlert
from tlslite.errors import TLSRemoteAlert as TLSRemoteAlert
from tlslite.messages import Alert, ApplicationData, ClientHello
from tlslite.messages import Message as Message

from support.address import Address
from support.patience import PATIENCE_S
from support.tls import NAME

TLS_1_2, TLS_1_3 = (3, 3), (3, 4)
GARBAGE = b"\x17\x03\x03\x00\x20" + bytes(32)
"""A record of application data that no key decrypts (RFC 8446 section 5.2)."""


def drain(sock: socket.socket) -> None:
    """Reads to the end, or to a reset."""
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(1 << 16):
            pass


class Breaker:
    """A connection after its handshake: a socket to speak through, the socket below it, and faults."""

    def __init__(self, address: Address, version: tuple[int, int], alpn: Iterable[bytes] = ()) -> None:
        self.plain = address.connect()
        self.tls = TLSConnection(self.plain)
        settings = HandshakeSettings()
        settings.minVersion = settings.maxVersion = version
        self.tls.handshakeClientCert(serverName=NAME, alpn=list(alpn) or None, settings=settings)
        # Without close_notify an end is no end, but an error.
        self.tls.ignoreAbruptClose = False

    def __enter__(self) -> "Breaker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sendall(self, data: bytes) -> None:
        self.tls.sendall(data)

    def recv(self, count: int) -> bytes:
        return bytes(self.tls.recv(count))

    def settimeout(self, timeout_s: float | None) -> None:
        self.plain.settimeout(timeout_s)

    def close(self) -> None:
        self.plain.close()

    def send_garbage(self) -> None:
        self.plain.sendall(GARBAGE)

    def send_fatal_alert(self) -> None:
        self._send(Alert().create(AlertDescription.internal_error, AlertLevel.fatal))

    def send_empty_record(self) -> None:
        self._send(ApplicationData().create(bytearray()))

    @contextlib.contextmanager
    def withheld(self) -> Iterator[list[bytes]]:
        """Keeps the records that are sent meanwhile from the socket."""
        # The pieces, which tlslite would send at its next flush.
        pieces: list[bytes] = []
        self.tls.sock.buffer_writes, queue = True, self.tls.sock._write_queue
        try:
            yield pieces
        finally:
            pieces += [bytes(piece) for piece in queue]
            queue.clear()
            self.tls.sock.buffer_writes = False

    def send_hello_again(self) -> None:
        """The hello of a client, in the middle of a session."""
        suites = [CipherSuite.TLS_AES_128_GCM_SHA256, CipherSuite.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
        self._send(ClientHello().create((3, 3), bytearray(32), bytearray(), suites))

    def send_key_update(self) -> None:
        """Send a KeyUpdate that asks for one in return (RFC 8446 section 4.6.3)."""
        for _ in self.tls.send_keyupdate_request(KeyUpdateMessageType.update_requested):
            raise AssertionError("the socket blocks")

    def _send(self, message: Any) -> None:
        for _ in self.tls._sendMsg(message):
            raise AssertionError("the socket blocks")

    def drain(self) -> None:
        """Reads ciphertext to the end, whatever it says."""
        drain(self.plain)


Fault = Callable[[Breaker], None]
FAULTS: dict[str, Fault] = {"garbage": Breaker.send_garbage, "a fatal alert": Breaker.send_fatal_alert}


def hello_bytes(address: Address) -> socket.socket:
    """A connection on which a client has said hello, and read nothing yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=NAME)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    sock = address.connect(PATIENCE_S)
    sock.sendall(outgoing.read())
    return sock
