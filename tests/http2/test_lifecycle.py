"""When a server leaves, reloads or is replaced, it sends GOAWAY to HTTP/2 clients and answers open requests."""

import signal

import pytest

from support import processes
from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.http2 import Talk
from support.patience import eventually
from support.server import Serve, Server

pytestmark = pytest.mark.own("only peers that it trusts may speak HTTP/2 without TLS with gunicorn")

HTTP2 = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge")
RELOADED = r"reloaded: generation (\d+) serves"
UPGRADED = r"upgraded: the new master (\d+) serves"


@pytest.fixture
def waiting(serve: Serve, gate: Gate) -> Server:
    return serve("waiting:app", "--threads", "2", *HTTP2, env=gate.environment)


def test_at_term_streams_are_answered_and_connections_end_with_a_goodbye(waiting: Server, gate: Gate) -> None:
    with Talk(waiting.address) as busy, Talk(waiting.address) as idle, Talk(waiting.address) as new:
        number = busy.begin("/wait")
        gate.announcement()
        assert idle.get("/pid").status == 200
        waiting.signal(signal.SIGTERM)
        for talk in (idle, new):
            talk.end()
            assert talk.goodbye is not None
            assert talk.goodbye.error_code == 0
        # The busy client gets GOAWAY at once, and not only after its answer.
        busy.until(lambda: busy.goodbye is not None)
        assert not busy.answers[number].is_over
        gate.open()
        assert busy.answer(number).status == 200
        busy.end()
    assert waiting.exit_code() == 0


def test_a_reload_answers_what_is_under_way_and_serves_others_anew(serve: Serve, gate: Gate, clock: Clock) -> None:
    deadlines = ("--keep-alive", "100", "--timeout", "0")
    environment = gate.environment | clock.environment
    server = serve("waiting:app", "--threads", "2", *deadlines, *HTTP2, env=environment)
    with Talk(server.address) as busy, Talk(server.address) as idle:
        number = busy.begin("/wait")
        gate.announcement()
        assert idle.get("/pid").status == 200
        mark = server.log.mark()
        server.signal(signal.SIGHUP)
        server.log.wait(RELOADED, mark)
        with Talk(server.address) as new:
            assert new.get("/pid").status == 200
            gate.open()
            assert busy.answer(number).status == 200
            busy.end()
            assert busy.goodbye is not None
            assert new.get("/pid").status == 200
            # It may ask once more until then.
            clock.advance(100)
            idle.end()
            assert idle.goodbye is not None
        with Talk(server.address) as another:
            assert another.get("/pid").status == 200


def test_who_has_idled_or_just_come_may_ask_once_more_of_a_server_that_is_replaced(
    serve: Serve, gate: Gate, counts: Counts
) -> None:
    server = serve("waiting:app", "--threads", "2", *HTTP2, *counts.arguments, env=gate.environment)
    with Talk(server.address) as busy, Talk(server.address) as idle, server.address.connect() as silent:
        number = busy.begin("/wait")
        gate.announcement()
        assert idle.get("/pid").status == 200
        eventually(lambda: counts.open_connections() == 3, "the one that has said nothing was let in")
        mark = server.log.mark()
        server.signal(signal.SIGHUP)
        server.log.wait(RELOADED, mark)
        new = Talk(server.address, sock=silent)
        for talk in (idle, new):
            assert talk.get("/pid").status == 200
            talk.end()
            assert talk.goodbye is not None
            assert talk.goodbye.error_code == 0
        gate.open()
        assert busy.answer(number).status == 200


def test_an_upgrade_answers_what_is_under_way(waiting: Server, gate: Gate) -> None:
    with Talk(waiting.address) as busy:
        number = busy.begin("/wait")
        gate.announcement()
        mark, old = waiting.log.mark(), waiting.pid
        waiting.signal(signal.SIGUSR2)
        new = int(waiting.log.wait(UPGRADED, mark)[1])
        waiting.follow(new)
        gate.open()
        assert busy.answer(number).status == 200
        busy.end()
        assert busy.goodbye is not None
    processes.gone(old)


def test_after_so_many_requests_the_client_is_to_make_another_connection(serve: Serve) -> None:
    server = serve("hello:app", "--keepalive-requests", "3", *HTTP2)
    with Talk(server.address) as talk:
        for _ in range(3):
            assert talk.get("/").status == 200
        talk.end()
        assert talk.goodbye is not None
        assert (talk.goodbye.error_code, talk.goodbye.last_stream_id) == (0, 5)


def test_when_a_worker_dies_its_stream_is_answered_502(waiting: Server, gate: Gate) -> None:
    with Talk(waiting.address) as talk:
        number = talk.begin("/wait")
        pid = int(gate.announcement().split()[0])
        processes.kill(next(one for one in waiting.processes() if one.pid == pid))
        assert talk.answer(number).status == 502
        assert talk.get("/pid").status == 200
