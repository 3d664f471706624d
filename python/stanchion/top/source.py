"""One GET from an admin listener, over TCP or a unix socket, bounded in time and size."""

import http.client
import io
import json
import socket
import time
from typing import NamedTuple, NoReturn

from stanchion.effective import UsageError

# All of an answer together: a status with as many seats as there can be is a few MiB.
ANSWER_BYTES_MAX = 16 * 1024 * 1024

# Seconds for one look, from connecting to the last byte: it never waits in the line.
LOOK_S = 5.0

_PREFIX = "unix:"


class Failed(Exception):
    """There was no answer, or none to use; its text says why."""


class Nobody(Failed):
    """No process listens there."""


class Silent(Failed):
    """A process listens there, and did not answer in time."""


class Place(NamedTuple):
    """Where an admin listener is."""

    text: str
    address: str | tuple[str, int]
    """The path of a unix socket, or host and port."""


def place(text: str) -> Place:
    """The place that is written like the setting: HOST:PORT, [IPV6]:PORT or unix:PATH."""
    # The options of a listener, such as ?backlog=64, are the server's business.
    bare = text.partition("?")[0]
    if bare.startswith(_PREFIX):
        path = bare.removeprefix(_PREFIX)
        if not path or "\0" in path:
            raise UsageError(f"top: {text!r} names no unix socket")
        return Place(text, "\0" + path[1:] if path.startswith("@") else path)
    host, colon, port = bare.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 0xFFFF
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not is_port or (":" in host and not bracketed) or "/" in host:
        raise UsageError(f"top: the admin listener is written HOST:PORT or unix:PATH, not {text!r}")
    # Linux takes a connection to the wildcard for one to the host itself.
    return Place(text, (host.strip("[]") or "0.0.0.0", int(port)))


def status(where: Place, patience_s: float = LOOK_S) -> object:
    """The JSON value of /status."""
    return value(where, "/status", patience_s, ANSWER_BYTES_MAX)


def value(where: Place, target: str, patience_s: float, bytes_max: int) -> object:
    """The JSON value at a target."""
    body = get(where, target, patience_s, bytes_max)
    try:
        return json.loads(body, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise Failed(f"the answer of {where.text} to {target} is no JSON: {error}") from error


def _refused(constant: str) -> NoReturn:
    # Python reads NaN and Infinity, which are no JSON (RFC 8259 section 6).
    raise ValueError(f"{constant} is no number")


def get(where: Place, target: str, patience_s: float, bytes_max: int) -> bytes:
    """The body of a 200. Failed if there is none within that time and size."""
    answer = _Bytes(_received(where, target, patience_s, bytes_max))
    try:
        response = http.client.HTTPResponse(answer)  # type: ignore[arg-type]
        response.begin()
        body = response.read()
    except (http.client.HTTPException, ValueError, OverflowError) as error:
        # A length beyond a ssize_t is an OverflowError.
        raise Failed(f"the process that answers at {where.text} is no admin listener: {error!r}") from error
    if response.status != 200:
        raise Failed(f"{where.text} answers {response.status} to {target}: is it the `admin` of a stanchion?")
    return body


def _received(where: Place, target: str, patience_s: float, bytes_max: int) -> bytes:
    """All that comes until the server closes."""
    deadline = time.monotonic() + patience_s
    answer = bytearray()
    # Close, so that its end is the end of the answer.
    request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    try:
        with _connected(where, patience_s) as connection:
            _allow(connection, deadline)
            connection.sendall(request)
            _allow(connection, deadline)
            while part := connection.recv(65536):
                answer += part
                if len(answer) > bytes_max:
                    raise Failed(f"the answer of {where.text} is longer than {bytes_max} bytes")
                _allow(connection, deadline)
    except TimeoutError as error:
        raise Silent(f"no whole answer from {where.text} within {patience_s:g} s") from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise Nobody(f"no process listens at {where.text}: does the server run, and with this `admin`?") from error
    except OSError as error:
        raise Failed(f"{where.text}: {error.strerror or error}") from error
    return bytes(answer)


def _allow(connection: socket.socket, deadline: float) -> None:
    """Give the next call the time that is left."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    connection.settimeout(left_s)


def _connected(where: Place, timeout_s: float) -> socket.socket:
    if not isinstance(where.address, str):
        return socket.create_connection(where.address, timeout_s)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        connection.connect(where.address)
    except OSError:
        connection.close()
        raise
    return connection


class _Bytes:
    """The part of a socket that http.client needs."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._content)
