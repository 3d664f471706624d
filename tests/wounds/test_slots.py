"""A slot of the exchange is given back once: not never, and not twice."""

import contextlib

import psutil
import pytest

from support.gate import Gate
from support.patience import eventually
from support.server import Serve
from support.wire import request

SLOTS = 2
"""The slots of a server with one worker of one thread: the request it answers, and one ahead."""
HANDED_OUT_MAX = 8
"""The most requests handed out to the only seat at once, while requests are short."""
LAST_CHUNK = b"0\r\n\r\n"


def test_clients_that_leave_a_long_answer_leave_no_slot_behind_whatever_the_app_keeps(serve: Serve, gate: Gate) -> None:
    server = serve("keeping:hoarding", env=gate.environment)
    for _ in range(SLOTS + 1):
        with server.connect() as leaving:
            leaving.send(request("GET", "/keep-environ"))
            assert leaving.head().status == 200
        assert gate.announcement() == "closed"
    with server.connect() as wire:
        assert wire.get("/").text == "fine"


@pytest.mark.own("gunicorn's processes share no memory")
def test_a_slot_that_was_written_over_by_a_worker_that_died_of_it_is_free_again(serve: Serve, gate: Gate) -> None:
    """By the time the acceptor looks, the master has emptied the seat: no record says any more whose the slot was."""
    server = serve("spoiling:scribbling", env=gate.environment)
    for number in range(HANDED_OUT_MAX + 1):
        with server.connect() as wire:
            assert wire.get("/spoil-and-die").status == 502
        server.log.wait_for("worker ready", number + 2)
    with server.connect() as wire:
        assert wire.get("/?alive").text.endswith("alive")
    assert not server.log.matches("is lost")


@pytest.mark.own("gunicorn's processes share no memory")
def test_a_slot_that_was_written_over_is_free_once_although_its_answer_ended_and_its_worker_died(
    serve: Serve, gate: Gate
) -> None:
    """The worker goes on after it was found out, because the master, which is to kill it, is held up."""
    server = serve("spoiling:scribbling", env=gate.environment)
    master = psutil.Process(server.pid)
    with server.connect() as spoiling, server.connect() as other:
        spoiling.send(request("GET", "/spoil"))
        pid = gate.announcement()
        assert spoiling.head().status == 200
        master.suspend()
        try:
            gate.let_pass(1)
            assert gate.announcement() == "spoilt"
            assert not spoiling.rest().endswith(LAST_CHUNK), "the answer is broken off"
            gate.let_pass(1)
            # The next answer of this worker: it is through with the spoilt one.
            assert other.get("/?before").text == f"{pid} before"
        finally:
            master.resume()
    server.log.wait("is replaced: it wrote where it should not")
    server.log.wait_for("worker ready", 2)
    with contextlib.ExitStack() as wires_end:
        wires = [wires_end.enter_context(server.connect()) for _ in range(4 * SLOTS)]
        for number, wire in enumerate(wires):
            wire.send(request("GET", f"/?{number}"))
        texts = [wire.response().text for wire in wires]
    assert [text.split()[1] for text in texts] == [str(number) for number in range(4 * SLOTS)]
    assert pid not in {text.split()[0] for text in texts}


@pytest.mark.own("gunicorn's processes share no memory")
@pytest.mark.parametrize("acceptor_dies", [False, True])
def test_a_slot_that_was_given_away_to_an_empty_seat_is_free_again(
    serve: Serve, gate: Gate, acceptor_dies: bool
) -> None:
    """The slot's owner does not exist: so its death is never reported, and it never finishes."""
    server = serve("spoiling:scribbling", env=gate.environment)
    acceptor = server.acceptor()
    with server.connect() as giving:
        giving.send(request("GET", "/give-away-and-die"))
        assert gate.announcement() == "asked"
        if acceptor_dies:
            acceptor.suspend()
        gate.let_pass(1)
        server.log.wait_for("worker ready", 2)
        if acceptor_dies:
            acceptor.kill()
            server.log.wait("of the acceptor before this one")
        else:
            assert giving.response().status == 502
    with server.connect() as wire:
        eventually(lambda: wire.get("/given-away").text == "0", "the slot is free again")
    assert server.acceptor().is_running()


@pytest.mark.own("gunicorn's processes share no memory")
def test_a_worker_that_says_that_another_sits_at_its_seat_holds_no_request_for_long(serve: Serve, gate: Gate) -> None:
    """The worker can write its lie into the scoreboard, too. But the master has reported which worker sits there."""
    server = serve("spoiling:scribbling", env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/under-another-name"))
        liar = int(gate.announcement())
        assert wire.response().status == 502
    eventually(lambda: not psutil.pid_exists(liar), "it is replaced")


@pytest.mark.own("gunicorn's processes share no memory")
def test_a_worker_one_of_whose_seats_was_talked_into_leaving_leaves_and_is_replaced(serve: Serve, gate: Gate) -> None:
    """Otherwise it would stay with fewer seats, and with none once that happens to all: no request would be served."""
    server = serve("spoiling:scribbling", "--threads", "2", env=gate.environment)
    with server.connect() as closing, server.connect() as waking:
        closing.send(request("GET", "/close"))
        assert gate.announcement() == "closed"
        waking.send(request("GET", "/?woken"))
        left = int(closing.response().text.split()[0])
        assert waking.response().text.endswith("woken")
    eventually(lambda: not psutil.pid_exists(left), "the worker has left")
    with server.connect() as wire:
        assert wire.get("/").status == 200
