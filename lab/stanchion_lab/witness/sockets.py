"""The listening sockets of our own network namespace, and how full their accept queues are: sock_diag(7).

`ss -ltx` shows the same; to start it for each look would take longer than the look.
"""

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

# The numbers and structures are those of linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and linux/unix_diag.h.
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR = 2
NLMSG_DONE = 3
LISTENING = 1 << 10  # TCP_LISTEN, which unix sockets have too
UDIAG_SHOW_NAME_AND_QUEUE = 0x01 | 0x10
UNIX_DIAG_NAME = 0
UNIX_DIAG_RQLEN = 4

HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, pid
INET_REQUEST = struct.Struct("=BBBBI48x")  # inet_diag_req_v2: family, protocol, extensions, padding, states, any socket
INET_ANSWER = struct.Struct("=4x2s2x16s16x4x8x4xII")  # inet_diag_msg: port, address, connections waiting, backlog
UNIX_REQUEST = struct.Struct("=BBHIII8s")  # unix_diag_req: family, protocol, padding, states, inode, show, any cookie
UNIX_ANSWER_BYTES = 16  # unix_diag_msg, before its attributes
ATTRIBUTE = struct.Struct("=HH")  # rtattr: length, type
QUEUE = struct.Struct("=II")  # unix_diag_rqlen: connections waiting, backlog

DATAGRAM_BYTES = 32 << 10
"""A netlink datagram is at most this long (NLMSG_GOODSIZE of the kernel is half of it)."""
ANSWER_S_MAX = 5.0
"""The kernel answers at once; this is only a bound."""


@dataclass(frozen=True)
class Listening:
    address: str
    """`127.0.0.1:80`, `[::]:80`, `/run/app.sock` or `@name`."""
    waiting: int
    """Connections that no process has accepted yet."""
    backlog: int
    """In force: what listen(2) was given, or net.core.somaxconn if that was less at the time. One more fits in."""


def listening() -> list[Listening]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(ANSWER_S_MAX)
        found = []
        for family in (socket.AF_INET, socket.AF_INET6):
            request = INET_REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, LISTENING)
            found += [_of_tcp(answer, family) for answer in _ask(netlink, request)]
        request = UNIX_REQUEST.pack(socket.AF_UNIX, 0, 0, LISTENING, 0, UDIAG_SHOW_NAME_AND_QUEUE, b"\xff" * 8)
        return found + [_of_unix(answer) for answer in _ask(netlink, request)]


def _ask(netlink: socket.socket, request: bytes) -> Iterator[bytes]:
    """The answers to a request for all sockets of a kind."""
    header = HEADER.pack(HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 0, 0)
    netlink.send(header + request)
    while True:
        rest = netlink.recv(DATAGRAM_BYTES)
        while rest:
            length, kind, *_ = HEADER.unpack_from(rest)
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                number = -struct.unpack_from("=i", rest, HEADER.size)[0]
                raise OSError(number, f"sock_diag(7): {os.strerror(number)}")
            yield rest[HEADER.size : length]
            rest = rest[_aligned(length) :]


def _of_tcp(answer: bytes, family: socket.AddressFamily) -> Listening:
    port, address, waiting, backlog = INET_ANSWER.unpack_from(answer)
    if family == socket.AF_INET6:
        host = f"[{socket.inet_ntop(family, address)}]"
    else:
        host = socket.inet_ntop(family, address[:4])
    return Listening(f"{host}:{int.from_bytes(port, 'big')}", waiting, backlog)


def _of_unix(answer: bytes) -> Listening:
    address, waiting, backlog = "", 0, 0
    rest = answer[UNIX_ANSWER_BYTES:]
    while len(rest) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(rest)
        value = rest[ATTRIBUTE.size : length]
        if kind == UNIX_DIAG_NAME:
            # A path may end in a zero byte; an abstract name begins with one (unix(7)).
            address = os.fsdecode(b"@" + value[1:] if value.startswith(b"\0") else value.rstrip(b"\0"))
        elif kind == UNIX_DIAG_RQLEN:
            waiting, backlog = QUEUE.unpack(value)
        rest = rest[_aligned(length) :]
    return Listening(address, waiting, backlog)


def _aligned(length: int) -> int:
    """Messages and attributes begin at multiples of 4 bytes (netlink(7))."""
    return max(4, (length + 3) & ~3)
