"""How servers take turns, and what is made of what was seen."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from bench import idle, wrk
from bench.processes import Cpu, ServerError, process_cpu, process_pss_bytes
from bench.servers import Server
from bench.turns import Turn, cpu_figures, spent_since, take_turns

SERVERS = [Server(name, None, lambda _: []) for name in "ABC"]


def stand(*, broken: str = "", breaks_in: int = 0) -> Callable[[Server], contextlib.AbstractContextManager[Turn]]:
    """`broken` does not start, or fails in its turn of that number, counted from 1."""

    @contextlib.contextmanager
    def stand(server: Server) -> Iterator[Turn]:
        turns = 0
        if server.name == broken and not breaks_in:
            raise ServerError("did not start")

        def turn() -> dict[str, float]:
            nonlocal turns
            turns += 1
            if server.name == broken and turns == breaks_in:
                raise ServerError("broke")
            return {"turns": turns}

        yield turn

    return stand


def test_servers_take_turns_there_and_back():
    taken = list(take_turns(stand(), SERVERS, 3))
    assert "".join(one.server for one in taken) == "ABCCBAABC"
    assert [one.number for one in taken] == [0] * 3 + [1] * 3 + [2] * 3
    assert [one.figures["turns"] for one in taken] == [1] * 3 + [2] * 3 + [3] * 3


def test_a_server_that_does_not_start_costs_the_others_nothing():
    taken = list(take_turns(stand(broken="B"), SERVERS, 2))
    assert [(one.server, one.error) for one in taken] == [
        ("B", "ServerError: did not start"),
        ("A", ""),
        ("C", ""),
        ("C", ""),
        ("A", ""),
    ]


def test_a_server_that_fails_has_no_further_turn():
    taken = list(take_turns(stand(broken="C", breaks_in=2), SERVERS, 3))
    assert "".join(one.server for one in taken) == "ABCCBAAB"
    assert [one.error for one in taken if one.error] == ["ServerError: broke"]


def test_every_server_is_ended_when_the_turns_are_over():
    ended = []

    @contextlib.contextmanager
    def noted(server: Server) -> Iterator[Turn]:
        yield dict
        ended.append(server.name)

    list(take_turns(noted, SERVERS, 1))
    assert sorted(ended) == ["A", "B", "C"]


def test_cpu_time_is_divided_by_ticks_and_adds_up():
    spent = {"front": Cpu(3_000_000, 10, 30), "back": Cpu(1_000_000, 0, 0)}
    figures = dict(cpu_figures("nginx_", spent, 1000))
    assert figures["nginx_cpu_us"] == pytest.approx(4.0)
    assert figures["nginx_kernel_us"] == pytest.approx(3.0)
    assert figures["nginx_front:user_us"] == pytest.approx(0.75)
    assert (figures["nginx_back:user_us"], figures["nginx_back:kernel_us"]) == (pytest.approx(1.0), 0.0)


def test_a_process_that_came_between_counts_whole():
    spent = spent_since({"a": Cpu(5, 2, 1)}, {"a": Cpu(9, 3, 1), "b": Cpu(7, 0, 7)})
    assert spent == {"a": Cpu(4, 1, 0), "b": Cpu(7, 0, 7)}


def test_what_this_process_has_used_is_found():
    before = process_cpu(os.getpid())[1]
    until_s = time.thread_time() + 0.05
    while time.thread_time() < until_s:
        pass
    name, after = process_cpu(os.getpid())
    # The kernel reports user and system time in whole ticks each (proc_pid_stat(5)).
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert (after - before).all_ns > 50_000_000 - 2 * tick_ns
    assert name and process_cpu(2**22 + 1) == ("", Cpu())
    assert 0 < process_pss_bytes(os.getpid(), "Pss_Anon") < process_pss_bytes(os.getpid())


RESULT = (
    'RESULT {{"requests": {}, "bytes": {}, "duration_us": 2000000, "p50_us": 250, "p99_us": 1500,'
    ' "connect": 0, "read": 1, "write": 0, "status": 2, "timeout": 0}}\n'
)


@pytest.mark.parametrize(("requests", "read_bytes", "failures"), [(10, 1200, 3), (10, 1000, 3), (10, 820, 5)])
def test_failures_are_errors_and_answers_that_were_short(requests: int, read_bytes: int, failures: int):
    seen = wrk.parsed("Running ...\n" + RESULT.format(requests, read_bytes), body_bytes=100)
    assert (seen.requests, seen.bytes, seen.failures) == (requests, read_bytes, failures)
    assert (seen.duration_s, seen.p50_ms, seen.p99_ms) == (2.0, 0.25, 1.5)


def test_no_result_of_wrk_is_no_figure():
    with pytest.raises(RuntimeError, match="unable to connect"):
        wrk.parsed("unable to connect to 127.0.0.1:1", body_bytes=1)


@pytest.mark.parametrize(
    ("answer", "alive"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\nHello, World!\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 14\r\n\r\nHello, World!\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\nHello", False),
        (b"", False),
    ],
)
def test_a_connection_is_alive_if_it_is_answered_and_kept(answer: bytes, alive: bool):
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def serve() -> None:
            theirs.recv(1000)
            theirs.sendall(answer)
            theirs.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve)
        thread.start()
        assert idle.is_alive(ours) is alive
        thread.join()
