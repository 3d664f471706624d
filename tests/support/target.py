"""A server for adversaries: what it counts, and whether it is itself again behind them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.address import Address
from support.client_memory import SMALL_BYTES, memory
from support.counts import Counts
from support.patience import eventually
from support.processes import sleeps
from support.server import Serve, Server
from support.tls import Authority, speak
from support.wire import Wire


@dataclass
class Target:
    """A server and what it counts; some of its clients speak TLS."""

    server: Server
    counts: Counts
    admin: Address
    authority: Authority | None = None

    def connect(self) -> Any:
        sock = self.server.address.connect()
        return speak(sock, self.authority.context()) if self.authority else sock

    def answers_others(self, path: str = "/text/plain?len=5") -> None:
        with Wire(self.connect()) as honest:
            assert honest.get(path).status == 200

    def is_itself_again(self) -> None:
        eventually(lambda: self.counts.open_connections() == 0, "all connections end")
        self.counts.settled()
        acceptor = self.server.acceptor_by_name()
        eventually(lambda: sleeps(acceptor.pid), "the acceptor rests")
        eventually(lambda: memory(self.admin)["bytes"] < SMALL_BYTES, "no account has bytes")


def launch(serve: Serve, home: Path, app: str, *arguments: str) -> Target:
    counts, admin = Counts(home / "control"), Address(path=str(home / "admin"))
    # Each attacker counts as a client of its own, as if each had an address.
    server = serve(app, *arguments, *counts.arguments, "--admin", f"unix:{admin.path}")
    return Target(server, counts, admin)
