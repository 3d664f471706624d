"""How the benchmark's own client reads what servers send over a WebSocket."""

import socket

from bench.sockets import head, whole_frames

ECHO = head(0, 5) + b"hello"
PING = b"\x89\x02hi"
# Masked by zeros, as a client must (RFC 6455, section 5.3).
PONG = b"\x8a\x82" + bytes(4) + b"hi"


def test_pings_before_between_and_behind_messages_are_answered_whatever_the_pieces() -> None:
    came = PING + ECHO + PING + PING + ECHO + PING
    for step in range(1, len(came) + 1):
        ours, servers = socket.socketpair()
        with ours, servers:
            got, messages = bytearray(), 0
            for start in range(0, len(came), step):
                got += came[start : start + step]
                messages += whole_frames(ours, got, ECHO)
            assert (messages, bytes(got)) == (2, b"")
            assert servers.recv(1024) == 4 * PONG
