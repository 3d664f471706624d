"""A client that the acceptor answers by itself, after it has dealt with all that was sent before."""

from support.address import Address
from support.wire import Wire


def acceptor_has_seen(address: Address) -> None:
    """Wait until the acceptor has dealt with all that was sent to the server, or closed, before.

    It answers nonsense itself, and hears of connections in the order in which they have news. Twice: the first answer
    may go out earlier in a turn of its loop than what it makes of the others in that turn, and at another listener than
    theirs it may be a turn before them.
    """
    for _ in range(2):
        with Wire.connect(address) as wire:
            wire.send(b"nonsense\r\n\r\n")
            assert wire.response().status == 400
