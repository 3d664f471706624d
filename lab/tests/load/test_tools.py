"""The load tools that are programs, where they are installed, against servers that do one thing each."""

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from stanchion_lab import programs
from stanchion_lab.load import TOOLS, Failed, Offered, Target, offer
from stanchion_lab.result import BROKEN, ERROR, GATEWAY, LATE, OUTCOMES, REFUSED, SERVED, TOLD
from stanchion_lab.scenario import Load, ToolName
from support.patience import PATIENCE_S
from support.ports import row_of_ports
from support.scripted import request_line, reset, scripted

CLOSED = {"connections": 2, "requests": 8}
OPEN = {"rate_per_s": 40.0, "for_s": 0.2}
LOADS = {"vegeta": OPEN, "httperf": OPEN, "oha": CLOSED, "siege": CLOSED, "ab": CLOSED}
PROGRAMS = [name for name, tool in TOOLS.items() if tool.program]


def needs(tool: str) -> None:
    if not programs.tool_of(Load(tools=[tool])):
        pytest.skip(f"{tool} is not installed")


def offered(tool: str, address: str, directory: Path, **load: Any) -> Offered:
    return offer(Load(tools=[tool], **load), Target(address), directory, lambda share: None)


def outcomes(got: Offered) -> dict[str, float]:
    counts = {outcome: got.figures[outcome] for outcome in OUTCOMES}
    assert sum(counts.values()) == got.figures["requests"]
    return {outcome: count for outcome, count in counts.items() if count}


def answers(status: str, body: bytes = b"ok\n", length: int | None = None) -> Callable[[socket.socket], None]:
    length = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nX-Worker: 3\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"

    def script(connection: socket.socket) -> None:
        if request_line(connection):
            connection.sendall(head.encode() + body)

    return script


def closes(connection: socket.socket) -> None:
    request_line(connection)


def resets(connection: socket.socket) -> None:
    request_line(connection)
    reset(connection)


def hangs(connection: socket.socket) -> None:
    while connection.recv(1024):
        pass


@pytest.mark.parametrize("tool", PROGRAMS)
@pytest.mark.parametrize(
    ("script", "outcome", "status"),
    [
        (answers("200 OK"), SERVED, 200),
        (answers("302 Found"), SERVED, 302),
        (answers("404 Not Found"), ERROR, 404),
        (answers("502 Bad Gateway"), GATEWAY, 502),
        (answers("503 Service Unavailable"), TOLD, 503),
        (closes, BROKEN, None),
        (resets, BROKEN, None),
    ],
    ids=["200", "302", "404", "502", "503", "closes", "resets"],
)
def test_what_becomes_of_requests(
    tool: str, script: Callable[[socket.socket], None], outcome: str, status: int | None, tmp_path: Path
) -> None:
    needs(tool)
    with scripted(script) as address:
        got = offered(tool, address, tmp_path, **LOADS[tool], patience_s=PATIENCE_S)
    assert outcomes(got) == {outcome: 8}
    statuses = {name: count for name, count in got.figures.items() if name.startswith("status.")}
    assert statuses == ({f"status.{status}": 8} if status else {})
    assert (got.figures["failed"] == 0) == (outcome in (SERVED, TOLD))
    assert ("latency_ms.max" in got.figures) == (outcome == SERVED)
    assert got.tool == tool and got.command.startswith(f"{tool} ")


@pytest.mark.parametrize("tool", PROGRAMS)
def test_no_server_listens(tool: str, tmp_path: Path) -> None:
    needs(tool)
    with row_of_ports(1) as port:
        got = offered(tool, f"127.0.0.1:{port}", tmp_path, **LOADS[tool], patience_s=PATIENCE_S)
    assert outcomes(got) == {REFUSED: 8}


@pytest.mark.parametrize("tool", ["vegeta", "oha", "httperf"])
def test_patience_ends(tool: str, tmp_path: Path) -> None:
    needs(tool)
    with scripted(hangs) as address:
        got = offered(tool, address, tmp_path, **LOADS[tool], patience_s=1.0)
    assert outcomes(got) == {LATE: 8}


def test_ab_gives_up_where_nothing_comes(tmp_path: Path) -> None:
    needs("ab")
    with scripted(hangs) as address, pytest.raises(Failed, match=r"ab gave up: .*timeout"):
        offered("ab", address, tmp_path, **CLOSED, patience_s=1.0)


@pytest.mark.parametrize("tool", ["vegeta", "oha", "httperf"])
def test_a_part_of_a_load_is_not_told_as_the_whole(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(tool)
    monkeypatch.setattr("stanchion_lab.load.program.OVERHEAD_S", -PATIENCE_S)
    with scripted(hangs) as address, pytest.raises(Failed, match=f"{tool} gave up"):
        offered(tool, address, tmp_path, **OPEN, patience_s=PATIENCE_S)


def test_siege_is_lifted_past_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("siege")
    monkeypatch.setattr("stanchion_lab.load.program.OVERHEAD_S", 0.5)
    with scripted(hangs) as address:
        got = offered("siege", address, tmp_path, connections=2, requests=2, patience_s=0.5)
        assert outcomes(got) == {LATE: 2}
        # When its own time is over, siege drops the requests that are under way.
        got = offered("siege", address, tmp_path, connections=2, for_s=1.0, patience_s=0.5)
        assert outcomes(got) == {}


@pytest.mark.parametrize("tool", ["vegeta", "oha"])
def test_over_a_unix_socket(tool: str, tmp_path: Path) -> None:
    needs(tool)
    with scripted(answers("200 OK"), tmp_path / "app.sock") as address:
        got = offered(tool, address, tmp_path, **LOADS[tool], patience_s=PATIENCE_S)
    assert outcomes(got) == {SERVED: 8}


@pytest.mark.parametrize("tool", ["vegeta", "ab", "httperf"])
def test_workers_have_their_shares(tool: str, tmp_path: Path) -> None:
    needs(tool)
    with scripted(answers("200 OK")) as address:
        got = offered(tool, address, tmp_path, **LOADS[tool], patience_s=PATIENCE_S)
    assert got.shares == {"3": 8}


@pytest.mark.parametrize("tool", ["vegeta", "oha", "siege"])
def test_paths_have_their_shares(tool: str, tmp_path: Path) -> None:
    needs(tool)
    paths: list[str] = []

    def notes(connection: socket.socket) -> None:
        paths.append(request_line(connection).split(" ")[1])
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    load = {"rate_per_s": 400.0, "for_s": 0.5} if tool == "vegeta" else {"connections": 2, "requests": 200}
    with scripted(notes) as address:
        got = offered(tool, address, tmp_path, **load, paths={"/a": 3.0, "/b": 1.0}, patience_s=PATIENCE_S)
    assert outcomes(got) == {SERVED: 200} and len(paths) == 200
    assert 20 <= paths.count("/b") <= 80  # fifty, or by dice
    assert got.figures.keys() >= {"latency_ms.p50/a", "latency_ms.p50/b"}


@pytest.mark.parametrize("tool", ["httperf", "vegeta"])
def test_a_rate_lasts_as_long_as_it_should(tool: str, tmp_path: Path) -> None:
    needs(tool)
    with scripted(answers("200 OK")) as address:
        got = offered(tool, address, tmp_path, rate_per_s=20.0, for_s=0.5, patience_s=PATIENCE_S)
    assert outcomes(got) == {SERVED: 10}


@pytest.mark.parametrize("tool", PROGRAMS)
@pytest.mark.parametrize(
    ("load", "address"),
    [
        ({**OPEN, "arrivals": "poisson"}, "127.0.0.1:1"),
        (OPEN, "127.0.0.1:1"),
        (CLOSED, "127.0.0.1:1"),
        ({}, "unix:/nowhere"),
        ({"paths": {"/": 1.0, "/b": 1.0}}, "127.0.0.1:1"),
        ({**OPEN, "keep_alive": True, "connections": 2}, "127.0.0.1:1"),
        ({"hang_up": False}, "127.0.0.1:1"),
        ({"method": "POST"}, "127.0.0.1:1"),
        ({"numbered": True}, "127.0.0.1:1"),
    ],
    ids=["poisson", "rate", "clients", "unix", "paths", "kept", "stays", "posts", "numbers"],
)
def test_what_a_tool_cannot_it_says(tool: str, load: dict[str, Any], address: str, tmp_path: Path) -> None:
    """The table of docs/lab/load-tools.md lists these limits."""
    needs(tool)
    what = {
        "vegeta": {"rate", "unix", "paths", "kept"},
        "oha": {"rate", "clients", "unix", "paths", "kept"},
        "siege": {"clients", "paths"},
        "ab": {"clients"},
        "httperf": {"rate", "poisson"},
    }[tool]
    case = {
        "poisson": load.get("arrivals") == "poisson",
        "unix": address.startswith("unix:"),
        "paths": "paths" in load,
        "kept": "keep_alive" in load,
        "stays": "hang_up" in load,
        "posts": "method" in load,
        "numbers": "numbered" in load,
        "rate": load == OPEN,
        "clients": load == CLOSED,
    }
    (asked,) = [name for name, is_asked in case.items() if is_asked]
    whole = load if "rate_per_s" in load or "connections" in load else {**LOADS[tool], **load}
    if asked in what:
        got = offered(tool, address, tmp_path, **whole, patience_s=PATIENCE_S)
        assert outcomes(got) == {REFUSED: 8}
    else:
        with pytest.raises(Failed, match=f'{tool} cannot .*tools = \\["own"\\]'):
            offered(tool, address, tmp_path, **whole, patience_s=PATIENCE_S)


@pytest.mark.parametrize(
    ("tool", "load", "why"),
    [
        ("siege", {"connections": 3, "requests": 8}, "no multiple"),
        ("siege", {"connections": 2, "requests": 8, "for_s": 1.0}, "not both"),
        ("oha", {"connections": 2, "requests": 8, "for_s": 1.0}, "not both"),
    ],
)
def test_amounts_that_a_tool_does_not_know(tool: str, load: dict[str, Any], why: str, tmp_path: Path) -> None:
    needs(tool)
    with pytest.raises(Failed, match=why):
        offered(tool, "127.0.0.1:1", tmp_path, **load)


def test_every_tool_that_a_file_can_name_is_there() -> None:
    assert set(get_args(ToolName)) == TOOLS.keys()
    assert set(PROGRAMS) < programs.PROGRAMS.keys()


def test_none_of_the_tools_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert shutil.which("sh")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Failed, match="none of vegeta, ab is installed"):
        offer(Load(tools=["vegeta", "ab"], **CLOSED), Target("127.0.0.1:1"), tmp_path, lambda share: None)
