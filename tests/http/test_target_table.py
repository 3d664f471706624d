"""Four servers are sent each byte in a target: the table in docs/internals/http.md says what they do."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support import missing
from support.address import Address
from support.asgi import UVICORN, Flavour
from support.proxies import nginx_as_peer, program
from support.scripted import request_line, scripted
from support.server import GUNICORN, Serve
from support.targets import PLACES, ask_once, seen, seen_by_asgi, target
from support.wire import Response

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "http.md"
URI = {*b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?@!$&'()*+,;="}
"""RFC 3986 sections 3.3 and 3.4."""
SHOWN = {ord("`"): "backtick", ord("|"): r"`\|`", ord(" "): "space", ord("%"): "`%` that encodes nothing"}

pytestmark = [
    pytest.mark.own("it has servers of its own"),
    pytest.mark.skipif(
        bool(missing.allowed("" if program("nginx") else "NOT TESTED BESIDE NGINX: it is not installed")),
        reason="NOT TESTED BESIDE NGINX: it is not installed",
    ),
]

Verdicts = dict[tuple[str, int], str]
Judge = Callable[[Response, bytes], str]


def of_wsgi(response: Response, sent: bytes) -> str:
    told = seen(response)
    cut = sent.partition(b"#")[0]
    # gunicorn leaves the fragment in RAW_URI.
    raw = cut if (told.path, told.query) == parts(cut) else told.raw
    return verdict(sent, raw, (told.path, told.query) == parts(raw))


def of_asgi(response: Response, sent: bytes) -> str:
    told = seen_by_asgi(response)
    raw = told.raw_path + (b"?" + told.query if b"?" in sent else b"")
    return verdict(sent, raw, told.path == told.raw_path.decode("utf-8", "replace").encode())


def parts(raw: bytes) -> tuple[bytes, bytes]:
    path, _, query = raw.partition(b"?")
    return path, query


def verdict(sent: bytes, got: bytes, agrees: bool = True) -> str:
    if not agrees:
        return f"otherwise: {got!r}"
    if got == sent:
        return "accepted"
    return "cut off" if got == sent.partition(b"#")[0] else f"otherwise: {got!r}"


def verdicts(address: Address, judge: Judge) -> Verdicts:
    found = {}
    for place in PLACES:
        for byte in range(256):
            sent = target(byte, place)
            response = ask_once(address, sent)
            if response is None:
                found[place, byte] = "no answer"
            elif response.status == 200:
                found[place, byte] = judge(response, sent)
            else:
                found[place, byte] = str(response.status)
    return found


def mirror(connection: socket.socket) -> None:
    """Answers with the target that was sent: what a proxy passes on."""
    told = request_line(connection).encode("latin-1")[len(b"GET ") : -len(b" HTTP/1.x")]
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))


def uvicorn(http: str) -> Flavour:
    return Flavour(replace(UVICORN, name=f"uvicorn-{http}", command=(*UVICORN.command, "--http", http)), "asyncio")


@pytest.mark.timeout(300)
def test_the_table_says_what_each_server_does(serve: Serve, tmp_path: Path) -> None:
    columns = {"gunicorn 27": verdicts(serve("echo:target", kind=GUNICORN).address, of_wsgi)}
    for http in ("httptools", "h11"):
        columns[f"uvicorn, {http}"] = verdicts(uvicorn(http).serve(serve, "echo:target_asgi").address, of_asgi)
    with (
        scripted(mirror) as upstream,
        nginx_as_peer(tmp_path, "", f"/ {{ proxy_pass http://{upstream}; }}") as nginx,
    ):
        columns["nginx"] = verdicts(nginx, lambda response, sent: verdict(sent, response.body))
    columns["stanchion"] = verdicts(serve("echo:target").address, of_wsgi)
    as_asgi = verdicts(serve("echo:target_asgi", "--interface", "asgi").address, of_asgi)
    assert as_asgi == columns["stanchion"], "WSGI and ASGI apps are told the same"
    table = "\n".join(rows(columns))
    assert table in PAGE.read_text(), f"the table is\n{table}"


def rows(columns: dict[str, Verdicts]) -> Iterator[str]:
    """One for all bytes of which the same is true."""
    yield f"| byte | in | {' | '.join(columns)} |"
    yield f"|---|---|{'---|' * len(columns)}"
    alike: dict[tuple[str, ...], dict[str, set[int]]] = {}
    for byte in range(256):
        for place in PLACES:
            told = tuple(of[place, byte] for of in columns.values())
            alike.setdefault(told, {}).setdefault(place, set()).add(byte)
    for told, places in alike.items():
        path, query = (places.get(place, set()) for place in PLACES)
        for where, group in (("both", path & query), ("path", path - query), ("query", query - path)):
            if group:
                yield f"| {named(group)} | {where} | {' | '.join(told)} |"


def named(group: set[int]) -> str:
    words = []
    rest = set(group)
    if rest >= URI:
        words.append("what URIs have there")
        rest -= URI
    words += [SHOWN.get(byte, f"`{chr(byte)}`") for byte in sorted(rest) if 0x20 <= byte < 0x7F]
    others = sorted(byte for byte in rest if not 0x20 <= byte < 0x7F)
    while others:
        length = next((at for at, byte in enumerate(others) if byte != others[0] + at), len(others))
        run, others = others[:length], others[length:]
        words.append(f"0x{run[0]:02X}" + (f" to 0x{run[-1]:02X}" if length > 1 else ""))
    return ", ".join(words)
