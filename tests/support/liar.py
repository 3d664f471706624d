"""An app that was asked to lie to the acceptor, and waits to be let."""

from support.gate import Gate
from support.processes import standing_still
from support.server import Server


def let_lie(server: Server, gate: Gate) -> None:
    """It does so while the acceptor stands still."""
    assert gate.announcement() == "asked"
    with standing_still(server.acceptor()):
        gate.let_pass(1)
        assert gate.announcement() == "told"
