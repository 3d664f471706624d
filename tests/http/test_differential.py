"""The same bytes to us, to nginx, to HAProxy and to a reader of RFC 9112 that shares nothing with the server: all must
see the same requests, or that there is something to refuse.

Where two servers on one connection differ about where a request ends, one client's bytes become another's request. A
failure names the seed of each case, and a seed always makes the same case.
"""

import asyncio
import hashlib
import os
import secrets
from collections import Counter
from pathlib import Path

import pytest

from support import missing
from support.corpus import INVALID, VALID, expectation, request_bytes
from support.mutations import SMUGGLED, mutated
from support.ports import row_of_ports
from support.proxies import Proxy, program
from support.rfc9112 import read
from support.server import Serve, Server
from support.tap import Talk, Tap, ask_all
from support.verdict import Saw, answers, complaint
from support.wire import chunked, request

CASES = int(os.environ.get("STANCHION_DIFFERENTIAL_CASES", "1500"))
"""Mutations that each proxy is sent, besides the corpus; the server itself is sent four times as many."""
DIRECT = 4 * CASES
SECONDS_A_CASE = 0.1
"""Far more than one takes."""

LAST = b"GET /last HTTP/1.1\r\nHost: test\r\n\r\n"
"""Follows most cases: it is part of what is wrong before it, or a request of its own."""

CORPUS = {path.stem: request_bytes(path) for path in [*VALID, *INVALID]}
SHOWN = 5
"""Complaints of a failure; the rest are most often the same."""

pytestmark = [
    pytest.mark.timeout(120 + SECONDS_A_CASE * DIRECT),
    pytest.mark.own("gunicorn differs"),
]


def cases(count: int) -> dict[str, bytes]:
    """Name or seed -> what is sent."""
    bases = [request_bytes(path) for path in [*VALID, *VALID, *VALID, *INVALID]]
    mutations = {f"seed {number}": mutated(bases, f"seed {number}") for number in range(count)}
    return {name: data + (LAST if name[-1] not in "05" else b"") for name, data in {**CORPUS, **mutations}.items()}


class Witness:
    """A server and the file in which its app says what it saw."""

    def __init__(self, serve: Serve, home: Path) -> None:
        self._file = home / "saw"
        self.server: Server = serve("echo:noting", "-w", "2", "--half-close", env={"SAW": str(self._file)})

    def assert_nothing_else(self, talks: list[Talk]) -> None:
        """The app has run for those requests that were answered, and for no other."""
        ran = Counter(Saw.parse(line) for line in self._file.read_text().splitlines())
        told = Counter(answer.saw for talk in talks for answer in answers(bytes(talk.answered)) if answer.saw)
        assert ran == told


@pytest.fixture
def witness(serve: Serve, tmp_path: Path) -> Witness:
    return Witness(serve, tmp_path)


def assert_none(complaints: list[str]) -> None:
    assert not complaints, f"{len(complaints)} complaints, such as\n" + "\n".join(complaints[:SHOWN])


def test_it_reads_what_clients_send_as_the_rfc_does(witness: Witness) -> None:
    sent = cases(DIRECT)
    talks, _ = asyncio.run(ask_all(witness.server.address, list(sent.values())))
    assert_none([f"{name}: {found}" for name, talk in zip(sent, talks, strict=True) if (found := complaint(talk))])
    witness.assert_nothing_else(talks)
    # The seeds make requests of all kinds.
    readings = [read(data) for data in sent.values()]
    for kind in (
        [reading for reading in readings if reading.refused and reading.requests],
        [reading for reading in readings if reading.incomplete],
        [reading for reading in readings if any(one.choices for one in reading.requests)],
        [reading for reading in readings if any(one.body for one in reading.requests)],
        [reading for reading in readings if not reading.refused and len(reading.requests) > 2],
    ):
        assert len(kind) > DIRECT // 200


@pytest.mark.parametrize("proxy_kind", ["nginx", "nginx lax", "haproxy", "haproxy lax"])
def test_behind_a_proxy_it_sees_what_the_proxy_means_and_nothing_else(
    witness: Witness, proxy_kind: str, tmp_path: Path
) -> None:
    name = proxy_kind.partition(" ")[0]
    if why := missing.allowed("" if program(name) else f"NOT TESTED BEHIND {name.upper()}: it is not installed"):
        pytest.skip(why)
    secret = secrets.token_hex(8)
    sent = cases(CASES)

    async def through_the_proxy() -> tuple[list[Talk], dict[int, list[int]]]:
        tap = Tap(witness.server.address)
        upstream = await tap.open()
        with row_of_ports(1) as port:
            proxy = Proxy(proxy_kind, tmp_path / "proxy", port, upstream, secret)
            try:
                proxy.wait()
                _, by_port = await ask_all(proxy.address, list(sent.values()))
            finally:
                proxy.stop()
                await tap.close()
        return tap.talks, by_port

    talks, by_port = asyncio.run(through_the_proxy())
    names = list(sent)
    complaints = []
    for talk in talks:
        if found := complaint(talk) or unmeant(talk, secret):
            ports = [int(part[1 : part.find(b"\r")]) for part in bytes(talk.asked).split(secret.encode())[1:]]
            of = [names[number] for port in ports for number in by_port[port]]
            complaints.append(f"{of}: {found}")
    assert_none(complaints)
    witness.assert_nothing_else(talks)
    forwarded = [one for talk in talks for one in read(bytes(talk.asked)).requests]
    assert len(forwarded) > CASES // 2, "the proxy forwards too little for this to show anything"
    assert sum(bool(one.body) for one in forwarded) > CASES // 20
    if name == "haproxy":  # nginx does so only with what has not come whole
        assert any(one.all(b"transfer-encoding") for one in forwarded), "no chunks are passed on"
    assert max(len(read(bytes(talk.asked)).requests) for talk in talks) > 1, "it uses no connection again"


def unmeant(talk: Talk, secret: str) -> str:
    """Each request has the mark of the proxy, once: else there is one that the proxy took for a part of another."""
    reading = read(bytes(talk.asked))
    for one in reading.requests:
        marks = [value for value in one.all(b"x-meant") if value.startswith(secret.encode())]
        if len(marks) != 1:
            return f"the proxy never meant {one}"
    rest = 1 if reading.refused or reading.incomplete else 0
    if not 0 <= bytes(talk.asked).count(secret.encode()) - len(reading.requests) <= rest:
        return f"the proxy meant another number of requests than {len(reading.requests)}: {bytes(talk.asked)!r}"
    return ""


# ---- The judge judged


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_the_judge_takes_what_is_valid(path: Path) -> None:
    reading = read(request_bytes(path))
    expected = expectation(path)["request"]
    assert isinstance(expected, list)
    assert (reading.refused, reading.incomplete) == ("", False)
    assert [one.method.decode() for one in reading.requests] == [one["method"] for one in expected]
    assert [one.body.decode("latin-1") for one in reading.requests] == [one.get("body", "") for one in expected]


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_the_judge_refuses_what_is_not(path: Path) -> None:
    reading = read(request_bytes(path))
    assert reading.refused or reading.incomplete or reading.requests[-1].choices


def test_the_judge_of_answers_finds_each_kind_of_error() -> None:
    def saw(method: str, target: bytes, body: bytes = b"", status: str = "200 OK") -> bytes:
        words = [method, target.hex(), str(len(body)), hashlib.sha256(body).hexdigest(), "-"]
        return f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nX-Saw: {' '.join(words)}\r\n\r\n".encode()

    refusal = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\nConnection: close\r\n\r\nno.\n"
    plain, post = request("GET", "/a"), request("POST", "/b", ["Transfer-Encoding: chunked"]) + chunked([b"hello"])
    for asked, answered, expected in [
        (plain + post, saw("GET", b"/a") + saw("POST", b"/b", b"hello"), ""),
        (plain + b"\0\n", saw("GET", b"/a") + refusal, ""),
        (plain, saw("GET", b"/a") + saw("GET", b"/smuggled"), "it served a request 1 that is none"),
        (post, saw("POST", b"/b", b"hell"), "it read request 0 differently"),
        (plain, saw("GET", b"/c"), "it read request 0 differently"),
        (plain, refusal, "it refused request 0"),
        (plain, saw("GET", b"/a") + refusal, "it refused nothing"),
        (plain + post, saw("GET", b"/a"), "it left request 1 without an answer"),
        (plain + b"\0\n", saw("GET", b"/a"), "it refused without a word"),
        (b"\0\n", refusal.replace(b"close", b"keep-alive"), "the connection goes on after refusal 0"),
    ]:
        found = complaint(Talk(bytearray(asked), bytearray(answered)))
        assert found.startswith(expected) and bool(found) == bool(expected), (asked, found)


def test_what_no_proxy_meant_is_found() -> None:
    meant = request("GET", "/", ["X-Meant: secret.1"])
    assert not unmeant(Talk(bytearray(meant + meant)), "secret")
    assert unmeant(Talk(bytearray(meant + SMUGGLED)), "secret")
    hidden = request("POST", "/", ["X-Meant: secret.1"], body=meant)
    assert unmeant(Talk(bytearray(hidden)), "secret")
