"""Mixed load on a server of `chaotic:app`, an account of what came of it, and what to break meanwhile."""

import collections
import contextlib
import hashlib
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from support.http2 import Answer
from support.patience import PATIENCE_S
from support.processes import open_paths
from support.server import APPS, Server
from support.wire import BrokenOff, Response, Wire, request

DURATION_S = float(os.environ.get("STANCHION_CHAOS_S", "2"))
"""The duration of the load."""

BODY_BYTES = (10, 60_000, 200_000, 700_000)
"""Small, larger than a read, larger than `--body-memory`, and larger than what is written to a spool file at once."""
FILE = (APPS / "chaotic.py").read_bytes()
STREAMED_BYTES = 20 * 16_384
PIPELINED_MAX = 6
HEAD_BYTES = 200
SLOW_READ_BYTES = 30_000
SLOW_PAUSE_S = 0.01
SLOW_SHARE = 0.2
LEAVES_AFTER_S = 0.5

HARMLESS = ("/fine", "/echo", "/stream", "/file", "/nap")
HARMFUL = ("/exit", "/os-exit", "/segv", "/fork", "/close-fds", "/threads", "/allocate", "/garbage")
HARM_SHARE = 0.03


def seed() -> int:
    """The seed of this run, printed so that it can be run again."""
    chosen = int(os.environ.get("STANCHION_CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"STANCHION_CHAOS_SEED={chosen}")
    return chosen


class Account:
    """The outcomes of requests, as their clients saw them."""

    def __init__(self) -> None:
        self.ends: collections.Counter[str] = collections.Counter()
        """Counts by the name under which the server is to count each end."""
        self.wrong: list[str] = []
        self.aborted = 0
        """Requests of clients that leave at any byte: how these ended is unknown."""
        self._lock = threading.Lock()

    def end(self, name: str) -> None:
        with self._lock:
            self.ends[name] += 1

    def fail(self, why: str) -> None:
        with self._lock:
            self.wrong.append(why)

    def abort(self, requests: int) -> None:
        with self._lock:
            self.aborted += requests


class Asked:
    """A request, and what is right for an answer."""

    def __init__(self, dice: random.Random, name: str, paths: tuple[str, ...]) -> None:
        self.path = dice.choice(paths)
        self.query = name
        self.target = f"{self.path}?{name}"
        self.body = body = dice.randbytes(dice.choice(BODY_BYTES)) if self.path == "/echo" else b""
        self.sent = request("POST" if body else "GET", self.target, body=body)
        self._digest = hashlib.sha256(body).hexdigest()

    def is_right(self, body: bytes) -> bool:
        match self.path:
            case "/echo":
                return body == f"{self._digest} {self.query}".encode()
            case "/file":
                return body == FILE
            case "/stream" | "/garbage":
                return body.endswith(self.query.encode()) and len(body) >= STREAMED_BYTES
        return body == self.query.encode()

    def settle(self, account: Account, response: Response | Answer) -> None:
        """It was answered whole."""
        if (response.status == 200 and self.is_right(response.body)) or (
            response.status == 500 and self.path in HARMFUL
        ):
            account.end("answered")
        elif response.status == 502 and "died" in response.text:
            account.end("refused_worker_died")
        elif response.status == 502:
            account.end("refused_no_answer")
        elif response.status == 504:
            account.end("refused_worker_timed_out")
        else:
            account.fail(f"{self.path}?{self.query}: {response.status} {response.body[:200]!r}")


class Load:
    """Clients of one server, for a while. With `may_lose` a connection may end before its answer has begun."""

    def __init__(self, server: Server, seed: int, may_lose: bool = False) -> None:
        self.account = Account()
        self.over = threading.Event()
        self.server = server
        self.seed = seed
        self._may_lose = may_lose

    def client(self, number: int) -> None:
        """Batches of requests on a connection that stays: one by one, pipelined, or read slowly."""
        dice = random.Random(self.seed * 1000 + number)
        wire: Wire | None = None
        count = 0
        while not self.over.is_set():
            batch = []
            for _ in range(dice.choice((1, 1, 1, dice.randint(2, PIPELINED_MAX)))):
                count += 1
                paths = HARMFUL if dice.random() < HARM_SHARE else HARMLESS
                batch.append(Asked(dice, f"{number}-{count}", paths))
            wire = self._ask(wire, batch, slowly=dice.random() < SLOW_SHARE)
        if wire:
            wire.close()

    def _ask(self, wire: Wire | None, batch: list[Asked], slowly: bool) -> Wire | None:
        try:
            wire = wire or self.server.connect(timeout_s=3 * PATIENCE_S)
        except OSError as error:
            self.lose(batch[0], error)
            return None
        if slowly:
            wire.read_slowly(SLOW_READ_BYTES, SLOW_PAUSE_S)
        else:
            wire.read_slowly()
        sending = threading.Thread(target=self._send, args=(wire, batch))
        sending.start()
        left = True
        for asked in batch:
            left = self._answer(wire, asked)
            if not left:
                break
        if not left:
            # Wakes the sender too, whose requests the server does not read any more.
            with contextlib.suppress(OSError):
                wire.sock.shutdown(2)
        sending.join()
        if not left:
            wire.close()
            return None
        return wire

    def _send(self, wire: Wire, batch: list[Asked]) -> None:
        """Beside the reading: a server that is not read from does not read either."""
        with contextlib.suppress(OSError):
            wire.send(b"".join(asked.sent for asked in batch))

    def _answer(self, wire: Wire, asked: Asked) -> bool:
        """Whether the connection may go on."""
        try:
            response = wire.head()
        except (BrokenOff, OSError) as error:
            self.lose(asked, error)
            return False
        try:
            wire.read_body(response)
        except (BrokenOff, ConnectionResetError):
            # A reset, where the server had not read all that was pipelined behind it.
            self.account.end("broken_off")
            return False
        asked.settle(self.account, response)
        return not response.closes()

    def lose(self, asked: Asked, error: Exception) -> None:
        if self._may_lose:
            self.account.end("lost")
        else:
            self.account.fail(f"{asked.path}?{asked.query}: {error!r}")

    def aborter(self, number: int) -> None:
        """Clients that leave: each a byte later than the one before, and in the answer at a random one."""
        dice = random.Random(self.seed * 1000 + number)
        offset = 0
        while not self.over.is_set():
            asked = Asked(dice, f"{number}-{offset}", ("/fine", "/nap", "/echo", "/stream", "/file"))
            sent = asked.sent
            offset += 1
            cut = dice.choice((offset % min(len(sent), HEAD_BYTES), dice.randrange(len(sent)), len(sent)))
            self.account.abort(1)
            with contextlib.suppress(OSError), self.server.connect() as wire:
                wire.send(sent[:cut])
                if cut == len(sent) and dice.random() < 0.5:
                    wire.sock.settimeout(LEAVES_AFTER_S)
                    wire.sock.recv(dice.randint(1, 100_000))
                dice.choice((Wire.close, Wire.reset, Wire.half_close))(wire)


def at_random(
    dice: random.Random, over: threading.Event, enough: Callable[[], object], per_s: float, deed: Callable[[], object]
) -> None:
    """Does it so many times a second on average: for DURATION_S, and then until it is enough."""
    begun_s = time.monotonic()

    def is_over() -> bool:
        took_s = time.monotonic() - begun_s
        return took_s >= DURATION_S and bool(enough() or took_s >= DURATION_S + PATIENCE_S)

    while not is_over() and not over.wait(dice.expovariate(per_s)):
        with contextlib.suppress(psutil.NoSuchProcess):
            deed()
    over.set()


class Holding:
    """The descriptors of a process, and its mappings of shared memory."""

    def __init__(self, process: psutil.Process) -> None:
        self._kinds = collections.Counter(re.sub(r"\d+", "N", path) for path in open_paths(process))
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        self.mappings = sum(" /memfd:" in line or "/dev/zero" in line for line in maps.splitlines())

    def __repr__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self._kinds.items()))
        return f"{self.descriptors} descriptors ({kinds}), {self.mappings} shared mappings"

    @property
    def descriptors(self) -> int:
        return self._kinds.total()

    def is_within(self, before: "Holding") -> bool:
        return self.descriptors <= before.descriptors and self.mappings <= before.mappings


def nap(process: psutil.Process, for_s: float) -> None:
    """Stop a process and have it go on."""
    process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(for_s)
    finally:
        process.send_signal(signal.SIGCONT)
