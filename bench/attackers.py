"""Attackers of one kind, on eight connections. They open a connection again as soon as the server ends it.

The attackers are this file, run as a program on a core of its own. It prints a line when all of them have begun, and
goes on until its input ends. Then it prints what they did.
"""

import json
import os
import select
import socket
import ssl
import sys
import time
from typing import TypedDict

from bench import certificate
from bench.attacks import ATTACKS, BELOW_TLS, READ_BYTES, SLOW_READ_BYTES, Attack, Turns

CONNECTIONS = 8
SOURCE = "127.0.0.2"
"""Honest clients have another address."""
CONNECT_S = 1.0
# Between two attempts where the server takes no connection.
AGAIN_S = 0.01
# Small, so that the answer of a slow reader waits at the server and not in the kernel.
RECEIVE_BUFFER_BYTES = 4096
ENDED = select.POLLHUP | select.POLLERR


class Did(TypedDict):
    """The attackers count this between their beginning and their end."""

    connections: int
    bytes: int


class Attacker:
    """One connection at a time, which never blocks."""

    def __init__(self, port: int, attack: Attack, context: ssl.SSLContext | None) -> None:
        self._address = ("127.0.0.1", port)
        self._attack = attack
        self._context = context
        self._turns: Turns = iter(())
        self._unsent = b""
        self._due_s = 0.0
        self._is_in_handshake = False
        # Turns take place once something can be written, but a handshake waits for the other side.
        self._waits_to_read = False
        self.socket: socket.socket | None = None
        self.connections = 0
        self.sent_bytes = 0

    @property
    def events(self) -> int:
        """For poll(2)."""
        events = 0 if self._attack.reads_slowly and not self._is_in_handshake else select.POLLIN
        if not self._waits_to_read and (self._unsent or self._due_s <= time.monotonic()):
            events |= select.POLLOUT
        return events

    @property
    def pause_s(self) -> float:
        """Until it has something to do, whatever the server does."""
        return max(0.0, self._due_s - time.monotonic())

    def step(self) -> None:
        try:
            if self.socket is None:
                if self.pause_s:
                    return
                self._come()
            if self._is_in_handshake and not self._has_shaken_hands():
                return
            if not self._attack.reads_slowly:
                self._read_all()
            if self._has_turn() and not self._send():
                self.leave()
        except OSError:
            self.leave()

    def leave(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def _come(self) -> None:
        self._due_s = time.monotonic() + AGAIN_S
        plain = socket.socket()
        self.socket = plain
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._attack.reads_slowly:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        plain.bind((SOURCE, 0))
        plain.settimeout(CONNECT_S)
        plain.connect(self._address)
        plain.setblocking(False)
        self.connections += 1
        self._turns, self._unsent, self._due_s = self._attack.turns(), b"", 0.0
        self._is_in_handshake, self._waits_to_read = self._context is not None, False
        if self._context:
            self.socket = self._context.wrap_socket(plain, do_handshake_on_connect=False)

    def _has_shaken_hands(self) -> bool:
        assert isinstance(self.socket, ssl.SSLSocket)
        try:
            self.socket.do_handshake()
        except ssl.SSLWantReadError:
            self._waits_to_read = True
            return False
        except ssl.SSLWantWriteError:
            self._waits_to_read = False
            return False
        self._is_in_handshake = self._waits_to_read = False
        return True

    def _read_all(self) -> None:
        """Throws away what has come. TLS holds back nothing that poll(2) would not report."""
        assert self.socket
        try:
            while self.socket.recv(READ_BYTES):
                pass
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        raise ConnectionResetError("the server has ended the connection")

    def _has_turn(self) -> bool:
        if self._unsent or self._due_s > time.monotonic():
            return bool(self._unsent)
        self._due_s = time.monotonic() + self._attack.pause_s
        if self._attack.reads_slowly:
            self._read_slowly()
        return True

    def _read_slowly(self) -> None:
        assert self.socket
        try:
            if not self.socket.recv(SLOW_READ_BYTES):
                raise ConnectionResetError("the server has ended the connection")
        except (BlockingIOError, ssl.SSLWantReadError):
            pass

    def _send(self) -> bool:
        """False once there are no more turns."""
        assert self.socket
        if not self._unsent:
            turn = next(self._turns, None)
            if turn is None:
                return False
            self._unsent = turn
        try:
            sent_bytes = self.socket.send(self._unsent) if self._unsent else 0
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return True
        self._unsent = self._unsent[sent_bytes:]
        self.sent_bytes += sent_bytes
        return True


def context_of(attack: Attack) -> ssl.SSLContext | None:
    if attack.over == BELOW_TLS:
        return None
    context = certificate.unverifying()
    context.set_alpn_protocols([attack.over])
    return context


def besiege(port: int, attack: Attack, until: int) -> Did:
    """Until the descriptor `until` can be read."""
    context = context_of(attack)
    attackers = [Attacker(port, attack, context) for _ in range(CONNECTIONS)]
    for attacker in attackers:
        attacker.step()
    print("begun", flush=True)
    while True:
        poll = select.poll()
        poll.register(until, select.POLLIN)
        for attacker in attackers:
            if attacker.socket is not None:
                poll.register(attacker.socket, attacker.events)
        pauses_s = [attacker.pause_s for attacker in attackers if attacker.socket is None or attacker.pause_s]
        ready = dict(poll.poll(min(pauses_s) * 1e3 if pauses_s else None))
        if until in ready:
            break
        for attacker in attackers:
            events = ready.get(attacker.socket.fileno(), 0) if attacker.socket else 0
            if events & ENDED:
                attacker.leave()
            if events or attacker.socket is None:
                attacker.step()
    for attacker in attackers:
        attacker.leave()
    return {
        "connections": sum(attacker.connections for attacker in attackers),
        "bytes": sum(attacker.sent_bytes for attacker in attackers),
    }


if __name__ == "__main__":
    _, port, name = sys.argv
    os.set_blocking(sys.stdin.fileno(), False)
    print(json.dumps(besiege(int(port), ATTACKS[name], sys.stdin.fileno())))
