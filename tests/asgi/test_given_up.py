"""Apps that give up waiting for a client, and send on: what they have given up takes no memory without end."""

import pytest

from asgi.conftest import ServeAsgi
from support.gate import Gate
from support.server import Server
from support.websocket import Open
from support.wire import Wire, request

pytestmark = pytest.mark.own("uvicorn's loop has the client's socket")

SIZE = 1 << 20
"""The bytes of each message."""
GIVEN_UP = 40
"""So many sends the app has given up."""
TASKS = 1000
"""So many tasks send at once."""


@pytest.fixture
def server(serve_asgi: ServeAsgi, gate: Gate) -> Server:
    # Otherwise the part of an answer that a slow client does not take would go to a file.
    return serve_asgi("sockets:impatient", "--lifespan", "off", "--response-spool", "0", env=gate.environment)


def numbers(sent: bytes) -> list[int]:
    """The numbers of the messages that have come, each whole."""
    starts = range(0, len(sent), SIZE)
    found = [int.from_bytes(sent[start : start + 4], "big") for start in starts]
    assert sent == b"".join(number.to_bytes(4, "big") * (SIZE // 4) for number in found)
    return found


def check(came: list[int], through: int) -> None:
    """The client got all messages whose send had returned, in order, and few others, which the kernel still took."""
    assert came[:through] == list(range(through))
    assert came == sorted(set(came))
    assert through < len(came) < through + GIVEN_UP // 2


def test_of_messages_that_are_given_up_few_are_sent(server: Server, gate: Gate, opens: Open) -> None:
    client = opens(server, receive_buffer_bytes=4096)
    through = int(gate.announcement())
    gate.let_pass(1)
    heard = b"".join(iter(client.hear, b"last"))
    check(numbers(heard), through)


def test_of_pieces_of_an_answer_that_are_given_up_few_are_sent(server: Server, gate: Gate) -> None:
    with Wire(server.address.connect(receive_buffer_bytes=4096)) as wire:
        wire.send(request("GET", "/"))
        through = int(gate.announcement())
        gate.let_pass(1)
        body = wire.response().body
    assert body.endswith(b"last")
    check(numbers(body.removesuffix(b"last")), through)


def test_a_close_that_is_given_up_is_said(server: Server, gate: Gate, opens: Open) -> None:
    client = opens(server, "/ends", receive_buffer_bytes=4096)
    assert gate.announcement() == "left"
    *heard, last = client.until_end()
    assert last == (1011, "")
    numbers(b"".join(heard))


def test_an_answer_whose_end_is_given_up_is_whole(server: Server, gate: Gate) -> None:
    with Wire(server.address.connect(receive_buffer_bytes=4096)) as wire:
        wire.send(request("GET", "/ends"))
        assert gate.announcement() == "left"
        numbers(wire.response().body)


def test_who_waits_for_a_turn_is_looked_at_a_few_times_however_many_wait(
    serve_asgi: ServeAsgi, gate: Gate, opens: Open
) -> None:
    server = serve_asgi("sockets:crowding", "--lifespan", "off", env=gate.environment)
    client = opens(server, receive_buffer_bytes=4096)
    asked = int(gate.announcement())
    gate.let_pass(1)
    heard = [one for one in iter(client.hear, "last") if isinstance(one, str)]
    assert heard == [str(number) for number in range(TASKS)]
    assert asked <= 3 * TASKS
