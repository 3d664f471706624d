"""The figures read from h2load's output, and the benchmark's own client of HTTP/2."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import h2.config
import h2.connection
import h2.events
import pytest
from bench import h2_client, h2load, mixed_load
from bench.cases import OVER_HTTP2, WORKLOADS
from bench.servers import SERVERS, Address, Launch
from bench.wrk import Load

OUTPUT = """
finished in 1.01s, 12829.00 req/s, 513.77KB/s
requests: 10 total, 42 started, 10 done, {succeeded} succeeded, {failed} failed, 0 errored, 0 timeout
status codes: 31 2xx, {moved} 3xx, 0 4xx, {failed} 5xx
traffic: 513.77KB (526105) total, 112.81KB (115522) headers (space savings 90.62%), 1.40KB ({data}) data
"""
LOG = "".join(f"179544766535502{number}\t200\t{250 * (number + 1)}\n" for number in range(10))


@pytest.mark.parametrize(
    ("failed", "moved", "data", "failures"), [(0, 0, 1000, 0), (2, 1, 700, 3), (0, 0, 900, 1), (2, 0, 700, 3)]
)
def test_failures_are_other_statuses_and_answers_that_were_short(
    failed: int, moved: int, data: int, failures: int
) -> None:
    output = OUTPUT.format(succeeded=10 - failed, failed=failed, moved=moved, data=data)
    seen = h2load.parsed(output, LOG, seconds=2, body_bytes=100)
    assert (seen.requests, seen.bytes, seen.failures) == (10 - failed - moved, data, failures)
    assert (seen.duration_s, seen.p50_ms, seen.p99_ms) == (2, 1.5, 2.5)


def test_no_result_of_h2load_is_no_figure() -> None:
    with pytest.raises(RuntimeError, match="connect"):
        h2load.parsed("could not connect to host", "", seconds=1, body_bytes=1)


def test_the_load_is_one_connection_with_as_many_streams_as_others_have_connections() -> None:
    load = WORKLOADS["h2-hello"].load
    assert (load.connections, load.streams) == (1, Load().connections)
    assert {"-c1", "-m32"} < {*h2load.command(load, 1, 1, 1, h2load.LOG)}


@pytest.mark.parametrize("name", OVER_HTTP2)
def test_only_who_is_to_speak_http2_is_told_to(name: str) -> None:
    launch = Launch("app", Address(port=1))
    plain, http2 = (SERVERS[name].command(one) for one in (launch, replace(launch, http2=True)))
    assert plain != http2


Answers = Callable[[h2.connection.H2Connection, int, str], None]


def answer(frames: h2.connection.H2Connection, number: int, body: bytes, status: str = "200") -> None:
    frames.send_headers(number, [(":status", status)])
    frames.send_data(number, body, end_stream=True)


@contextlib.asynccontextmanager
async def serving(answers: Answers) -> AsyncIterator[int]:
    """A server of HTTP/2 to which `answers` says what to do about each request; its port."""

    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        config = h2.config.H2Configuration(client_side=False, header_encoding="ascii")
        frames = h2.connection.H2Connection(config)
        frames.initiate_connection()
        while data := await reader.read(65_536):
            for event in frames.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    answers(frames, event.stream_id, dict(event.headers)[":path"])
            writer.write(frames.data_to_send())
            if frames.state_machine.state is h2.connection.ConnectionState.CLOSED:
                break
        writer.close()
        await writer.wait_closed()
        served.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await served.wait()


async def asked(answers: Answers, *paths: str) -> list[bytes | BaseException]:
    """The answers or exceptions of these requests, which are sent together on one connection."""
    async with serving(answers) as port, h2_client.connected(port) as connection:
        return await asyncio.gather(*(connection.get(path) for path in paths), return_exceptions=True)


def test_answers_belong_to_their_streams_in_whatever_order_they_come() -> None:
    waiting: list[tuple[int, str]] = []

    def answers(frames: h2.connection.H2Connection, number: int, path: str) -> None:
        waiting.append((number, path))
        if len(waiting) == 3:
            for late, what in reversed(waiting):
                answer(frames, late, what.encode())

    assert asyncio.run(asked(answers, "/one", "/two", "/three")) == [b"/one", b"/two", b"/three"]


def test_a_stream_that_fails_costs_the_others_nothing() -> None:
    def answers(frames: h2.connection.H2Connection, number: int, path: str) -> None:
        if path == "/reset":
            frames.reset_stream(number)
        else:
            answer(frames, number, b"body", "503" if path == "/refused" else "200")

    reset, refused, whole = asyncio.run(asked(answers, "/reset", "/refused", "/"))
    assert isinstance(reset, ConnectionError) and "reset" in str(reset)
    assert isinstance(refused, ConnectionError) and "503" in str(refused)
    assert whole == b"body"


def test_the_end_of_the_connection_fails_all_that_wait() -> None:
    def answers(frames: h2.connection.H2Connection, number: int, path: str) -> None:
        if path == "/end":
            frames.close_connection()

    ended = asyncio.run(asked(answers, "/wait", "/end"))
    assert all(isinstance(one, ConnectionError) for one in ended)


def test_the_mixed_load_is_offered_to_streams_of_one_connection() -> None:
    streams: set[int] = set()

    def answers(frames: h2.connection.H2Connection, number: int, path: str) -> None:
        streams.add(number)
        answer(frames, number, b"1000000")

    async def offer() -> mixed_load.Outcome:
        async with serving(answers) as port, h2_client.connected(port) as connection:
            return await mixed_load.offer_to([connection] * 4, 0.5, seed=1)

    outcome = asyncio.run(offer())
    assert outcome.failures == 0
    assert len(streams) == len(outcome.served) > 10
