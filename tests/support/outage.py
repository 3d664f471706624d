"""An outage: each seat of a server hangs in the app, the line is full, and the server refuses new requests."""

from contextlib import ExitStack

from support.gate import Gate
from support.patience import PATIENCE_S
from support.server import Server
from support.wire import Wire, request

SEATS = 4
WAITING_MAX = 10
_SIZE = ("--workers", "2", "--threads", "2", "--max-waiting", str(WAITING_MAX))
ARGUMENTS = (*_SIZE, "--timeout", "0", "--queue-timeout", "0")
"""Arguments for a server of the app `waiting`."""

# Each seat may have some more handed out ahead.
_COME = 40


class Outage:
    """Ends with `release`, or with the test."""

    def __init__(self, server: Server, gate: Gate, stack: ExitStack, timeout_s: float = PATIENCE_S) -> None:
        self._server, self._gate, self._stack, self._timeout_s = server, gate, stack, timeout_s
        self._held: list[Wire] = []
        for _ in range(SEATS):
            self._held.append(self._asked("/wait?held"))
        gate.announcements(SEATS)
        for _ in range(_COME):
            self._held.append(self._asked("/pid?x"))

    def come(self) -> None:
        """One more client, which is refused."""
        assert self._asked("/pid?late").response().status == 503

    def release(self) -> list[int]:
        """The seats get free; the status of each answer."""
        self._gate.let_pass(SEATS)
        return [wire.response().status for wire in self._held]

    def _asked(self, target: str) -> Wire:
        wire = self._stack.enter_context(self._server.connect(timeout_s=self._timeout_s))
        wire.send(request("GET", target))
        return wire
