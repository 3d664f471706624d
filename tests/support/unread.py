"""The kernel's queues of a connection, from which a test knows that the server has read all that it was sent."""

import fcntl
import socket
import struct
import sys
import termios
from pathlib import Path

from support.patience import eventually
from support.wire import Wire


def until_read(*wires: Wire) -> None:
    """Wait until the server has read all that was sent on these, or has closed them."""
    for wire in wires:
        eventually(lambda wire=wire: unread_bytes(wire.sock) == 0, "the server reads what it was sent")


def unread_bytes(sock: socket.socket) -> int:
    """The bytes sent that the server has not read: for a unix socket the kernel counts them (unix(7))."""
    if sock.family == socket.AF_UNIX:
        return unacknowledged_bytes(sock)
    # The kernel goes on counting what a reset has made void.
    return (unacknowledged_bytes(sock) or _queues(sock)[1]) if _is_connected(sock) else 0


def unacknowledged_bytes(sock: socket.socket) -> int:
    """The bytes sent that the kernel of the other side has not taken (SIOCOUTQ in tcp(7))."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def taken_bytes(sock: socket.socket) -> int:
    """The bytes of the server that the kernel has taken for a TCP socket (`tcpi_bytes_received` in linux/tcp.h)."""
    [taken] = struct.unpack_from("=Q", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136), 128)
    return int(taken)


def untaken_bytes(sock: socket.socket) -> int:
    """The bytes written by the server to a TCP socket that its kernel still keeps."""
    return _queues(sock)[0]


def _queues(sock: socket.socket) -> tuple[int, int]:
    """The bytes to send and the bytes to read at the server's end (proc_net_tcp in the kernel's documentation)."""
    table = Path("/proc/net/tcp6" if sock.family == socket.AF_INET6 else "/proc/net/tcp")
    ends = [_end(sock.getpeername()), _end(sock.getsockname())] if _is_connected(sock) else []
    for line in table.read_text().splitlines():
        _, *found, _, queues = line.split()[:5]
        if found == ends:
            to_send, to_read = (int(part, 16) for part in queues.split(":"))
            return to_send, to_read
    return 0, 0


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def _end(address: tuple[str, int]) -> str:
    """An address as the table spells it: words of four bytes in the machine's order."""
    host, port = address[:2]
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed)) + f":{port:04X}"
