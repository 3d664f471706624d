"""Sessions (WebSockets) on a server of `chaotic:asgi`, and an account of what came of them.

Each client sends messages that differ, and is to hear each of them once, in their order, until its session ends; and a
close frame is to announce the end.
"""

import collections
import contextlib
import random
import threading
import time

from wsproto.events import BytesMessage, Ping, TextMessage

from support.havoc import HARM_SHARE, HARMFUL, Account
from support.patience import PATIENCE_S
from support.server import Server
from support.websocket import END, WebSocket
from support.wire import BrokenOff, Wire

MESSAGE_BYTES = (0, 10, 2_000, 60_000)
AHEAD_BYTES = 120_000
"""A client may send so much ahead of what it has heard: the kernel has room for it, so neither side blocks."""
PART_BYTES = 60_000
MESSAGES_MAX = 60
LEAVES_AFTER_S = 0.5
IDLE_SHARE = 0.3
IDLE_MAX_S = 0.3

ENDS = {
    (1000, ""): ("closed_by_client", "answered"),
    (4001, "as asked"): ("closed_by_app", "answered"),
    # The app has raised.
    (1011, ""): ("closed_by_app", "answered"),
    (1011, "the app has failed"): ("closed_by_server", "broken_off"),
    (1012, "the server restarts"): ("closed_by_server", "cut_at_shutdown"),
}
"""How a session and its request are to be counted, by the close frame that its client hears."""
REFUSED = {
    (502, b"the worker died while it answered"): "refused_worker_died",
    # Another session has spoiled the slot of this handshake.
    (502, b"the worker gave no answer"): "refused_no_answer",
    (503, b"as many WebSockets are open as worker_sessions allows"): "refused_sessions_full",
}
"""How the request of a handshake is to be counted, by the status and the reason in its answer."""
SAID = ("close", "return", "raise")
"""Words by which the app ends it."""


class Talk:
    """Clients of one server, until it is over. With `may_lose` a connection may end without a word."""

    def __init__(self, server: Server, seed: int, over: threading.Event, may_lose: bool = False) -> None:
        self.requests = Account()
        self.sessions: collections.Counter[str] = collections.Counter()
        """How many began, and how they ended, by the names under which the server is to count them."""
        self.heard = 0
        self._server = server
        self._seed = seed
        self._over = over
        self._may_lose = may_lose
        self._lock = threading.Lock()

    def client(self, number: int) -> None:
        """Sessions one after the other, each until its end."""
        dice = random.Random(self._seed * 2000 + number)
        while not self._over.is_set():
            self._with_session(_Session(dice, f"{number}"))

    def leaver(self, number: int) -> None:
        """Clients that leave without a word, whatever is on the way."""
        dice = random.Random(self._seed * 2000 + number)
        while not self._over.is_set():
            self.requests.abort(1)
            with contextlib.suppress(OSError, BrokenOff):
                client = WebSocket(self._server)
                with contextlib.closing(client.wire) as wire:
                    if client.status == 101:
                        self._leave(wire, dice)

    def _leave(self, wire: Wire, dice: random.Random) -> None:
        for _ in range(dice.randrange(5)):
            wire.send(masked(dice.randbytes(dice.choice(MESSAGE_BYTES))))
        if dice.random() < 0.5:
            wire.send(masked(bytes(PART_BYTES))[: dice.randrange(1, PART_BYTES)])
            # Perhaps nothing comes.
            wire.sock.settimeout(LEAVES_AFTER_S)
            wire.sock.recv(dice.randint(1, 100_000))
        dice.choice((wire.close, wire.reset, wire.half_close))()

    def _with_session(self, session: "_Session") -> None:
        try:
            client = WebSocket(self._server)
        except (BrokenOff, OSError) as error:
            self._lose(f"a handshake: {error!r}")
            return
        with contextlib.closing(client.wire):
            client.wire.sock.settimeout(3 * PATIENCE_S)
            if client.status != 101:
                self._refused(client)
                return
            self._count("begun")
            try:
                heard = session.talk(client)
                behind = client.until_end() if heard in ENDS else []
            except OSError as error:
                self._lose(f"{session}: {error!r}")
                return
            if heard == END:
                self._lose(f"{session}: no close frame")
            elif heard not in ENDS or behind or (heard not in UNASKED and session.waiting):
                self._fail(f"{session}: {str(heard)[:200]}, {str(behind)[:200]}")
            else:
                self._ended(session, heard)

    def _ended(self, session: "_Session", close: tuple[int, str]) -> None:
        of_session, of_request = ENDS[close]
        if session.said == "return":
            of_session = of_session.replace("by_client", "by_app")
        self._count(of_session)
        self.requests.end(of_request)
        with self._lock:
            self.heard += session.heard

    def _refused(self, client: WebSocket) -> None:
        reason = client.body.partition(b": ")[2].rstrip()
        if (client.status, reason) in REFUSED:
            self.requests.end(REFUSED[client.status, reason])
        else:
            self._fail(f"a handshake: {client.status} {client.body[:200]!r}")

    def _count(self, name: str) -> None:
        with self._lock:
            self.sessions[name] += 1

    def _lose(self, why: str) -> None:
        if self._may_lose:
            self.requests.end("lost")
        else:
            self._fail(why)

    def _fail(self, why: str) -> None:
        """Something is wrong: the others need not go on."""
        self.requests.fail(why)
        self._over.set()


def masked(message: bytes) -> bytes:
    """A binary message in one frame, whose mask changes nothing (RFC 6455 section 5.3)."""
    return b"\x82\xff" + len(message).to_bytes(8, "big") + bytes(4) + message


UNASKED = {close for close, (end, _) in ENDS.items() if end == "closed_by_server"} | {(1011, "")}
"""Ends that may come while something is on the way: also that of an app which harms itself."""


class _Session:
    """The messages that one client sends, and is to hear."""

    def __init__(self, dice: random.Random, name: str) -> None:
        self._dice = dice
        self._name = name
        self._left = dice.randint(0, MESSAGES_MAX)
        self._ahead_bytes = 0
        self.waiting: collections.deque[str | bytes] = collections.deque()
        """Sent, and not heard yet."""
        self.heard = 0
        self.said = ""
        """The word by which the client has asked the app to end the session."""

    def __str__(self) -> str:
        return f"session of client {self._name}, {self.heard} heard, {len(self.waiting)} on the way, said {self.said!r}"

    def talk(self, client: WebSocket) -> object:
        """Talk until a close frame comes, an end without one, or a message that is not to be heard now."""
        while True:
            while client.is_open and self._left and self._ahead_bytes < AHEAD_BYTES:
                self._left -= 1
                self._say(client)
            if client.is_open and not self._left and not self.waiting and not self.said:
                self._end(client)
            heard = client.hear()
            if isinstance(heard, tuple) and heard[0] == "pong":
                continue
            if heard == END or isinstance(heard, tuple) or not self.waiting or heard != self.waiting[0]:
                return heard
            self._ahead_bytes -= len(self.waiting.popleft())
            self.heard += 1

    def _say(self, client: WebSocket) -> None:
        dice = self._dice
        if dice.random() < HARM_SHARE / 3:
            message: str | bytes = dice.choice(HARMFUL)
            client.say(TextMessage(str(message)))
        else:
            message = f"{self._left} ".encode() + dice.randbytes(dice.choice(MESSAGE_BYTES))
            parts = (message[: len(message) // 2], message[len(message) // 2 :])
            if dice.random() < 0.2:
                client.say(BytesMessage(parts[0], message_finished=False))
                client.say(Ping(b"between"))
                client.say(BytesMessage(parts[1]))
            else:
                client.say(BytesMessage(message))
        self.waiting.append(message)
        self._ahead_bytes += len(message)

    def _end(self, client: WebSocket) -> None:
        if self._dice.random() < IDLE_SHARE:
            time.sleep(self._dice.uniform(0, IDLE_MAX_S))
        if self._dice.random() < 0.5:
            self.said = self._dice.choice(SAID)
            client.text(self.said)
        else:
            self.said = "nothing"
            client.close()
