"""The access log: every atom as gunicorn writes it, and a line for every request, come what may."""

import os
import re
import signal
from pathlib import Path

import pytest

from support.clock import Clock
from support.gate import Gate
from support.server import GUNICORN, STANCHION, Serve, Server
from support.wire import Wire, request

ATOMS = ["h", "l", "u", "t", "r", "m", "U", "q", "H", "s", "b", "B", "f", "a", "T", "D", "M", "L", "p"]
HEADER_ATOMS = ["{x-in}i", "{absent}i", "{content-type}o", "{absent}o"]
ENVIRON_ATOMS = ["{request_method}e", "{raw_uri}e", "{server_protocol}e", "{remote_addr}e"]
FORMAT = " | ".join(f"{atom}=%({atom})s" for atom in ATOMS + HEADER_ATOMS)
ENVIRON_FORMAT = " | ".join(f"{atom}=%({atom})s" for atom in ENVIRON_ATOMS)
COMBINED = r'127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "GET / HTTP/1\.1" 200 6 "ref" "agent"'

MEASURED = {
    "t": r"\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\]",
    "T": r"\d+",
    "D": r"\d+",
    "M": r"\d+",
    "L": r"\d+\.\d{6}",
    "p": r"<\d+>",
}
"""Atoms that differ from run to run: only their form can be compared."""

REQUESTS: dict[str, tuple[str, bytes]] = {
    "plain": ("GET", request("GET", "/with-length", ["Connection: close"])),
    "query": ("GET", request("GET", "/with-length?a=1&b=%20", ["Connection: close"])),
    "percent in path": ("GET", request("GET", "/%77ith-length", ["Connection: close"])),
    "http 1.0": ("GET", request("GET", "/with-length", version="1.0")),
    "headers": (
        "GET",
        request("GET", "/with-length", ["Connection: close", "Referer: http://r/", "User-Agent: u/1 (x)", "X-In: v"]),
    ),
    "user": ("GET", request("GET", "/with-length", ["Connection: close", "Authorization: Basic YnJvd246Zm94"])),
    "user that is no base64": (
        "GET",
        request("GET", "/with-length", ["Connection: close", "Authorization: Basic !!!"]),
    ),
    # A backslash is escaped by stanchion alone: without that, an escaped quote can be forged.
    "quotes are escaped": ("GET", request("GET", "/with-length", ["Connection: close", 'User-Agent: a"b"'])),
    "head": ("HEAD", request("HEAD", "/with-length", ["Connection: close"])),
    "no content": ("GET", request("GET", "/no-content", ["Connection: close"])),
    "chunked": ("GET", request("GET", "/chunks", ["Connection: close"])),
    "big": ("GET", request("GET", "/big-whole?100000", ["Connection: close"])),
    "own status": ("GET", request("GET", "/unusual-status", ["Connection: close"])),
    "post": ("POST", request("POST", "/with-length", ["Connection: close"], b"body")),
}


def fields(line: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in line.split(" | "))


@pytest.fixture(scope="module")
def pair(shared_serve: Serve) -> list[Server]:
    arguments = ("--access-logfile", "-", "--access-logformat", FORMAT)
    return [shared_serve("answers:app", *arguments, kind=kind) for kind in (STANCHION, GUNICORN)]


@pytest.mark.own("this is the comparison with the peer")
@pytest.mark.parametrize("name", REQUESTS)
def test_every_atom_is_gunicorns(pair: list[Server], name: str) -> None:
    method, data = REQUESTS[name]
    lines = []
    for server in pair:
        mark = server.stdout.mark()
        with server.connect() as wire:
            wire.send(data)
            wire.response(method)
        lines.append(fields(server.stdout.wait("h=", mark).string))
    ours, theirs = lines
    for atom, form in MEASURED.items():
        assert re.fullmatch(form, ours[atom]), f"%({atom})s is {ours[atom]!r}"
        assert re.fullmatch(form, theirs[atom]), f"gunicorn's %({atom})s is {theirs[atom]!r}"
    assert {atom: ours[atom] for atom in ours if atom not in MEASURED} == {
        atom: theirs[atom] for atom in theirs if atom not in MEASURED
    }


def test_the_default_format_is_the_combined_one(serve: Serve) -> None:
    server = serve("hello:app", "--access-logfile", "-")
    with server.connect() as wire:
        wire.get("/", "Referer: ref", "User-Agent: agent")
    assert re.fullmatch(COMBINED, server.stdout.wait("GET").string)


def test_environ_atoms(serve: Serve) -> None:
    server = serve("hello:app", "--access-logfile", "-", "--access-logformat", ENVIRON_FORMAT)
    with server.connect() as wire:
        wire.get("/a?b")
    assert fields(server.stdout.wait("raw_uri").string) == {
        "{request_method}e": "GET",
        "{raw_uri}e": "/a?b",
        "{server_protocol}e": "HTTP/1.1",
        "{remote_addr}e": "127.0.0.1",
    }


@pytest.mark.own("gunicorn shows no client over a unix socket")
class TestBehindAProxy:
    FORWARDED = "X-Forwarded-For: 198.51.100.1, 203.0.113.7"

    def first_words(self, server: Server) -> str:
        with server.connect() as wire:
            wire.get("/", self.FORWARDED)
        return server.stdout.wait("GET").string.partition(" [")[0]

    @pytest.mark.parametrize(("believed", "shown"), [("unix", "203.0.113.7"), ("127.0.0.1", "-")])
    def test_the_default_format_shows_the_client_over_a_unix_socket_where_the_proxy_is_believed(
        self, serve: Serve, tmp_path: Path, believed: str, shown: str
    ) -> None:
        options = ("--access-logfile", "-", "--forwarded-allow-ips", believed)
        server = serve("hello:app", *options, bind=f"unix:{tmp_path}/s")
        assert self.first_words(server) == f"{shown} - -"

    @pytest.mark.parametrize(("believed", "shown"), [("127.0.0.1", "203.0.113.7"), ("192.0.2.1", "127.0.0.1")])
    def test_over_tcp_an_atom_shows_the_client_and_h_the_proxy(self, serve: Serve, believed: str, shown: str) -> None:
        form = "%(h)s %({client}x)s %(t)s %(m)s"
        options = ("--access-logfile", "-", "--access-logformat", form, "--forwarded-allow-ips", believed)
        assert self.first_words(serve("hello:app", *options)) == f"127.0.0.1 {shown}"


def test_a_file_gets_the_same_lines(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    server = serve("hello:app", "--access-logfile", str(path))
    with server.connect() as wire:
        for _ in range(3):
            wire.get("/", "Referer: ref", "User-Agent: agent", "Connection: keep-alive")
            if server.kind is GUNICORN:
                break
    server.process.terminate()
    server.exit_code()
    lines = path.read_text().splitlines()
    assert len(lines) == (1 if server.kind is GUNICORN else 3)
    assert all(re.fullmatch(COMBINED, line) for line in lines)


def test_no_access_log_unless_asked_for(serve: Serve) -> None:
    server = serve("hello:app")
    with server.connect() as wire:
        wire.get("/not-to-be-logged")
    server.process.terminate()
    server.exit_code()
    server.log.wait_end()
    assert not server.log.matches("not-to-be-logged") and not server.stdout.lines()


def test_nothing_of_the_client_can_forge_a_line(serve: Serve) -> None:
    server = serve("hello:app", "--access-logfile", "-")
    with server.connect() as wire:
        wire.get("/%0aforged", 'User-Agent: x" 200 0 "-" "\u0085\u009b')
    line = server.stdout.wait("forged").string
    assert '\\"' in line or "\\x22" in line, "the quote is escaped"
    assert line.startswith("127.0.0.1 - - ")


@pytest.mark.own("gunicorn has nobody left to write it")
class TestAnswersOfTheServer:
    @pytest.fixture
    def server(self, serve: Serve, gate: Gate, clock: Clock) -> Server:
        env = gate.environment | clock.environment
        return serve("waiting:app", "--access-logfile", "-", "--timeout", "100", env=env)

    def test_a_request_whose_worker_was_killed_has_its_line(self, server: Server, gate: Gate) -> None:
        with server.connect() as wire:
            wire.send(request("GET", "/wait?killed"))
            os.kill(int(gate.announcement().split()[0]), signal.SIGKILL)
            assert wire.response().status == 502
        assert '"GET /wait?killed HTTP/1.1" 502 ' in server.stdout.wait("killed").string

    def test_a_request_that_was_stuck_has_its_line(self, server: Server, gate: Gate, clock: Clock) -> None:
        with server.connect() as wire:
            wire.send(request("GET", "/wait?stuck"))
            gate.announcement()
            clock.advance(101)
            assert wire.response().status == 504
        assert '"GET /wait?stuck HTTP/1.1" 504 ' in server.stdout.wait("stuck").string

    def test_a_refused_request_has_its_line(self, server: Server) -> None:
        with server.connect() as wire:
            wire.send(request("GET", "/" + "a" * 5000))
            assert wire.response().status == 414
        server.stdout.wait(r'" 414 ')

    def test_a_request_whose_client_left_has_its_line(self, server: Server, gate: Gate) -> None:
        with Wire.connect(server.address) as wire:
            wire.send(request("GET", "/wait?gone"))
            gate.announcement()
        gate.let_pass(1)
        server.stdout.wait("/wait.gone")
