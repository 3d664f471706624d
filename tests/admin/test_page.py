"""The page in a real browser: it draws the server's status, in light and in dark."""

import re
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.chromium import BROWSER_PATIENCE_S, NEEDS_CHROMIUM, browse
from support.clock import Clock
from support.gate import Gate
from support.greenlets import GEVENT
from support.outage import ARGUMENTS, WAITING_MAX, Outage
from support.patience import eventually
from support.ports import row_of_ports
from support.server import Serve
from support.targets import head
from support.websocket import WebSocket
from support.wire import request

WIDTH, HEIGHT = 1200, 1600

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.own("gunicorn has no such page"),
    NEEDS_CHROMIUM,
]


def look(url: str, *switches: str, within_ms: int = 4_000) -> str:
    """The text that the browser prints once the page has had its time."""
    printed, _ = browse(url, f"virtual-time-budget={within_ms}", f"window-size={WIDTH},{HEIGHT}", *switches)
    return printed


def pixels(png: Path, row_bytes: int) -> list[bytes]:
    """Its rows of RGB or RGBA pixels, unfiltered (PNG, third edition, sections 9 and 11), so much of each.

    A filter looks to the left and up, so what is to the right is not needed.
    """
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    width, height, depth, colours = struct.unpack_from(">IIBB", dict(chunks)[b"IHDR"])
    assert (width, height, depth) == (WIDTH, HEIGHT, 8) and colours in (2, 6)
    size = 3 if colours == 2 else 4
    raw = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    rows, above = [], bytes(row_bytes)
    for number in range(height):
        start = number * (width * size + 1)
        above = unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + row_bytes]), above, size)
        rows.append(above)
    return rows


def unfiltered(kind: int, row: bytearray, above: bytes, size: int) -> bytes:
    for index in range(len(row)):
        left = row[index - size] if index >= size else 0
        corner = above[index - size] if index >= size else 0
        up = above[index]
        nearest = min((left, up, corner), key=lambda one: abs(left + up - corner - one))
        row[index] = (row[index] + (0, left, up, (left + up) // 2, nearest)[kind]) & 0xFF
    return bytes(row)


def brightness(rows: list[bytes]) -> float:
    return sum(map(sum, rows[::50])) / sum(map(len, rows[::50]))


def test_it_shows_the_line_in_light_and_in_dark(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    with row_of_ports(1) as port, ExitStack() as stack:
        # A browser may take its time.
        limits = ("--max-waiting", "50", "--timeout", "0", "--queue-timeout", "0")
        server = serve("waiting:app", "--admin", f"127.0.0.1:{port}", *limits, env=gate.environment)
        wires = [stack.enter_context(server.connect(timeout_s=BROWSER_PATIENCE_S)) for _ in range(12)]
        wires[0].send(request("GET", "/wait?held"))
        gate.announcement()
        for wire in wires[1:]:
            wire.send(request("GET", "/pid?x"))
        url = f"http://127.0.0.1:{port}/"

        def shown() -> str | None:
            """The page; the browser may print it before the first answer when it has no core."""
            page = look(url, "dump-dom")
            # The acceptor hands out one of the eleven ahead. After five seconds, which a browser without a core takes
            # to start, the server says that its line stands.
            state = re.search(r'id="state"[^>]*>(serving|standing)<', page)
            shows = state and re.search(r"<b>10</b>\s*waiting", page)
            return page if shows else None

        page = eventually(shown, "the page shows the line", BROWSER_PATIENCE_S)
        assert "10 of 50" in page and "GET /wait" in page and f"pid {server.process.pid}" in page

        light, dark = tmp_path / "light.png", tmp_path / "dark.png"

        def are_drawn() -> bool:
            look(url, f"screenshot={light}")
            look(url, f"screenshot={dark}", "blink-settings=preferredColorScheme=0")
            return brightness(pixels(light, 300)) > 200 > 60 > brightness(pixels(dark, 300))

        eventually(are_drawn, "one is light, and one is dark", BROWSER_PATIENCE_S)
        gate.let_pass(1)
        for wire in wires:
            assert wire.response().status == 200


def test_a_target_is_no_markup(serve: Serve, gate: Gate) -> None:
    with row_of_ports(1) as port, ExitStack() as stack:
        server = serve("echo:target", "--admin", f"127.0.0.1:{port}", "--timeout", "0", env=gate.environment)
        wire = stack.enter_context(server.connect(timeout_s=BROWSER_PATIENCE_S))
        wire.send(head(b'/<script>document.title="foul"</script><b>"&lt;', b"X-Hold: 1"))
        gate.announcement()
        page = look(f"http://127.0.0.1:{port}/", "dump-dom")
        assert "<title>stanchion</title>" in page
        assert 'GET /&lt;script&gt;document.title="foul"&lt;/script&gt;&lt;b&gt;"&amp;lt;<' in page
        gate.let_pass(1)
        assert wire.response().status == 200


def test_an_outage_is_red_and_says_why(serve: Serve, gate: Gate, clock: Clock) -> None:
    with row_of_ports(1) as port, ExitStack() as stack:
        url = f"http://127.0.0.1:{port}/"
        environment = {**gate.environment, **clock.environment}
        server = serve("waiting:app", "--admin", f"127.0.0.1:{port}", *ARGUMENTS, env=environment)
        calm = look(url, "dump-dom")
        assert re.search(r'id="state"[^>]*class="good"[^>]*>serving<', calm)
        assert re.search(r'id="alarm"[^>]*hidden', calm) and "<title>stanchion</title>" in calm

        outage = Outage(server, gate, stack, BROWSER_PATIENCE_S)
        clock.advance(14)
        page = look(url, "dump-dom")
        assert re.search(r'id="state"[^>]*class="bad"[^>]*>standing<', page)
        alarm = re.search(r'id="alarm" role="alert">([^<]*)<small>([^<]*)<', page)
        assert alarm and re.fullmatch(
            r"All 4 seats are busy, the longest for .* with GET /wait, 3 more like it\.", alarm[1]
        )
        # Some more than the line has room for are handed out ahead.
        waiting = re.search(r"(\d+) wait", alarm[2])
        assert waiting and int(waiting[1]) >= WAITING_MAX
        assert "<title>standing · stanchion</title>" in page and '<body class="standing">' in page
        # A jam looks slow though nothing has ended.
        longest = re.search(r'class="tile bad"><b>([^<]*) s</b>longest runs', page)
        assert longest and float(longest[1]) >= 14
        slowest = re.search(r'id="service-now">p50 ([\d.]+) s, p99', page)
        assert slowest and float(slowest[1]) >= 10
        assert set(outage.release()) == {200, 503}


def test_what_it_shows_first_is_from_before_it_was_opened(serve: Serve) -> None:
    with row_of_ports(1) as port:
        server = serve("hello:app", "--admin", f"127.0.0.1:{port}")
        over = threading.Event()

        def ask() -> None:
            while not over.is_set():
                with server.connect() as wire:
                    assert wire.get("/").status == 200

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            # Less than it takes until the page looks a second time.
            page = look(f"http://127.0.0.1:{port}/", "dump-dom", within_ms=500)
        finally:
            over.set()
            asking.join()
        for name in ("arrivals", "answers"):
            rate = re.search(rf"<b>([\d.,]+)/s</b>{name}", page)
            assert rate and float(rate[1].replace(",", "")) > 0, name


def test_it_draws_throughput_by_busy_seats(serve: Serve, tmp_path: Path) -> None:
    with row_of_ports(1) as port:
        url = f"http://127.0.0.1:{port}/"
        server = serve("waiting:app", "--threads", "4", "--admin", f"127.0.0.1:{port}")
        assert re.search('id="throughput-figure"[^>]*hidden', look(url, "dump-dom")), "nothing was measured"

        def ask(count: int) -> None:
            with server.connect() as wire:
                for _ in range(count):
                    assert wire.get("/nap?5-", "Connection: keep-alive").status == 200

        # The first requests of each of the four seats do not count, and a point takes a hundred others.
        ask(4 * 16 + 110)
        with ThreadPoolExecutor(4) as clients:
            list(clients.map(ask, [60] * 4))
        page = look(url, "dump-dom")
        assert not re.search('id="throughput-figure"[^>]*hidden', page)
        assert re.search(r'id="throughput-now">[\d,.]+/s at [34]<', page)


def test_of_event_loops_it_shows_websockets(serve: Serve, tmp_path: Path) -> None:
    with row_of_ports(1) as port, ExitStack() as stack:
        server = serve("sockets:app", "--interface", "asgi", "--admin", f"127.0.0.1:{port}", "--ws-ping-interval", "0")
        clients = [WebSocket(server) for _ in range(3)]
        for client in clients:
            stack.callback(client.drop)
        clients[0].close(4_000)
        clients[0].until_end()

        page = look(f"http://127.0.0.1:{port}/", "dump-dom")
        assert re.search(r"<b>2</b>\s*WebSockets", page)
        (pid,) = [process.pid for process in server.processes() if "worker 0" in " ".join(process.cmdline())]
        loop = r'<td class="number">0</td>' rf'<td class="number">{pid}</td>' r'<td class="number">0</td>'
        assert re.search(loop + r'<td class="number">1,000</td><td class="number">2</td>', page)
        assert "Ended so far, by code: 4xxx 1" in page


def test_of_gevent_it_shows_loops_and_no_websockets(serve: Serve, tmp_path: Path) -> None:
    with row_of_ports(1) as port:
        serve("hello:app", *GEVENT, "--admin", f"127.0.0.1:{port}")
        page = look(f"http://127.0.0.1:{port}/", "dump-dom")
        assert re.search(r"</b>\s*largest lag of a loop", page)
        body = page.partition("<script>")[0]
        assert not re.search(r"</b>\s*WebSockets|<th[^>]*>WebSockets", body)
        assert re.search(r'id="sessions-now"[^>]*hidden', body)
