"""Clients that begin handshakes of TLS and stop, or make one after the other, and what is left for others."""

import contextlib
import socket

from bench import attacks, certificate
from bench.measure import Figures, Plan, serving, watching
from bench.servers import Server
from bench.slow_clients import WORKERS, Dawdler, beside
from bench.wrk import Load

# Half of them stop within their first words, half once the server has computed its answer to these.
STOPPERS = 240
# Then they leave, and come again: so many seconds later, all of them in turn.
STAYS_S = 3
# Each makes a whole handshake a second, from another address.
REPEATERS = 20
SOURCE = "127.0.0.2"
HANDSHAKE_S = 1.0


def flood(server: Server, plan: Plan, _round: int) -> Figures:
    """wrk over kept connections with TLS, without the others, with them, and without them again."""
    with serving(server, "big:app", workers=WORKERS, tls=True) as (tree, port):
        address = ("127.0.0.1", port)
        hello = attacks.hello()
        repeaters = [Repeater(address) for _ in range(REPEATERS)]
        stoppers = [
            Stopper(address, hello if number % 2 else hello[: len(hello) // 2], number) for number in range(STOPPERS)
        ]
        others_share = watching(tree)
        figures = beside([*stoppers, *repeaters], Load(tls=True), port, plan)
        handshakes = sum(repeater.handshakes for repeater in repeaters)
        return {**figures, "handshakes": handshakes, "others_share": others_share()}


class Stopper(Dawdler):
    """Says what it says, and nothing more."""

    def __init__(self, address: tuple[str, int], opening: bytes, number: int) -> None:
        super().__init__(address, opening, source=SOURCE)
        self._step = number

    def step(self) -> None:
        """Once a second."""
        self._step += 1
        if self._step % STAYS_S == 0:
            self.leave()
        if self.socket is None:
            with contextlib.suppress(OSError):
                self.come()


class Repeater(Dawdler):
    """Makes a whole handshake, and goes."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, b"", source=SOURCE)
        self._context = certificate.unverifying()
        self.handshakes = 0

    def step(self) -> None:
        """Once a second."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(self.address, HANDSHAKE_S, (self.source, 0)) as plain,
            self._context.wrap_socket(plain),
        ):
            self.handshakes += 1
