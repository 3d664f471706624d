"""The page of a run, and its pictures as files."""

import base64
import gzip
import math
import re
import struct
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pytest

from lab_support import results
from stanchion_lab import report
from stanchion_lab.report import canvas, plots, setup
from stanchion_lab.result import Measured, Result
from stanchion_lab.scenario import Plot
from support.chromium import NEEDS_CHROMIUM, browse

VOID = {"br", "hr", "img", "input", "link", "meta"}

# All of it takes seconds of CPU, and the machine may be busy with other tests.
pytestmark = pytest.mark.timeout(240)


class Reader(HTMLParser):
    """The contents of a page: its text, its elements, its links. Every element must be closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        for name, value in attrs:
            self.ids += [value or ""] if name == "id" else []
            self.links += [value or ""] if name in ("src", "href", "xlink:href", "srcset", "action") else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)


@pytest.fixture(scope="module")
def result() -> Result:
    return results.result()


@pytest.fixture(scope="module")
def rendered(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.render(result, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(rendered: Path) -> Reader:
    return Reader(rendered.read_text())


def size_of(png: Path) -> tuple[int, int]:
    """The size in its header (PNG, third edition, section 11.2.2)."""
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and data.endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def test_each_picture_is_also_a_file(rendered: Path) -> None:
    names = [f"{place}-{kind}" for place, kind in enumerate(results.KINDS, 1)] + ["setup-1", "setup-2"]
    assert sorted(file.name for file in rendered.parent.iterdir()) == sorted(
        ["report.html", *(f"{name}.{kind}" for name in names for kind in ("svg", "png"))]
    )
    for name in names:
        drawn = ElementTree.parse(rendered.parent / f"{name}.svg").getroot()
        width, height = float(drawn.attrib["width"]), float(drawn.attrib["height"])
        assert width == canvas.WIDE
        assert size_of(rendered.parent / f"{name}.png") == (2 * canvas.WIDE, pytest.approx(2 * height, abs=2))


def test_the_page_asks_no_server_for_anything(rendered: Path, page: Reader) -> None:
    assert "script" not in page.elements
    text = rendered.read_text()
    assert {found for found in re.findall(r"url\(([^)]*)\)", text) if not found.startswith("#")} == set()
    assert "@import" not in text
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids
        elif not link.startswith("data:"):
            assert (rendered.parent / link).is_file()
    assert len(page.ids) == len(set(page.ids))


def test_each_verdict_stands_beside_its_two_figures(result: Result, page: Reader) -> None:
    def middle(trial: str, figure: str) -> float:
        return sorted(one.figures[figure] for one in result.of(trial))[1]

    gateway, ours, large = (
        middle("small", "gateway"),
        middle("ours", "latency_ms.max"),
        middle("large", "latency_ms.max"),
    )
    told = page.text[: page.text.index("The set-up")]
    assert "2 of 5 claims hold, 2 do not, 1 was not measured." in told
    assert f"At 128 some requests fail : holds {gateway:.0f} 502 or 504 · gunicorn, somaxconn 128" in told
    assert f"< {gateway:.0f} 502 or 504 · gunicorn, somaxconn 128" in told
    assert f"half as slow : does not hold {ours:,.0f} ms longest latency · stanchion, somaxconn 128" in told
    assert f"≤ {large / 2:,.0f} ms 0.5 \N{MULTIPLICATION SIGN} longest latency · gunicorn, somaxconn 1024" in told
    assert "turns somebody away : does not hold 0 turned away" in told
    assert "Known exception: the line is long enough" in told
    assert "siege sees the same : not measured \N{EN DASH} 502 or 504 · gunicorn, asked by siege > 0" in told


def test_the_table_has_what_was_measured_what_was_not_and_what_was_published(result: Result, page: Reader) -> None:
    p99 = sorted(one.figures["latency_ms.p99"] for one in result.of("ours"))
    row = page.text[page.text.index("Figures trial requests served 502 or 504 median latency ms") :]
    row = row[row.index("stanchion, somaxconn 128 200 200 0 ") :]
    assert f" {p99[1]:,.0f} {p99[0]:,.0f} to {p99[2]:,.0f} 0 " in row[:120]
    assert "asked by siege not run: siege is not installed; Debian has it in the package siege" in page.text
    assert "large, repeat 4, gave no figures: web did not listen within 10 s" in page.text
    assert "gunicorn, somaxconn 128 502 or 504 67 " in page.text and "of 200, on a laptop" in page.text


def test_what_a_log_says_is_text(rendered: Path, page: Reader) -> None:
    assert '"GET /<script>alert(1)</script>"' in page.text
    assert "<script" not in rendered.read_text() and "\x1b" not in rendered.read_text()
    assert "itself, so <nothing> is refused." in page.text


def test_the_whole_result_can_be_had_from_it(result: Result, page: Reader) -> None:
    (link,) = [link for link in page.links if link.startswith("data:application/gzip;base64,")]
    packed = base64.b64decode(link.partition(",")[2], validate=True)
    again = msgspec.json.decode(gzip.decompress(packed), type=Result)
    assert again == result


def test_commands_settings_and_versions_are_told(page: Reader) -> None:
    for told in (
        "stanchion-lab run unix-backlog --full --repeats 3",
        "vegeta attack -rate=200 -duration=1s -timeout=60s",
        "net.core.somaxconn = 128",
        "kernel Linux 6.1.0-18-amd64",
        "nginx 1.22.1",
        "Status Codes [code:count] 200:132 502:68",
    ):
        assert told in page.text


def test_trials_share_a_drawing_as_far_as_their_servers_are_the_same(result: Result) -> None:
    gunicorn, ours = setup.shapes(result)
    assert [trial.name for trial in gunicorn.trials] == ["small", "large", "climb2", "absent"]
    assert gunicorn.path == ["client", "nginx", "gunicorn"] and ours.path == ["client", "nginx", "stanchion"]
    differ = dict(gunicorn.differ)
    none = "\N{EN DASH}"
    assert differ["net.core.somaxconn"] == ["128", "1024", none, none]
    assert differ["queue of gunicorn: in force"] == ["128", "1,024", none, none]
    assert differ["load"] == ["200 requests/s", "200 requests/s", "50 to 400 requests/s, by 50", "200 requests/s"]
    queue = gunicorn.cards[3]
    assert queue.lines == ["unix socket", "asked: 2,048", "in force: 128 / 1,024", "peak: 129 / 199"]
    assert queue.full == 1.0
    assert dict(ours.differ)["done to it"][1] == "touch stall at 1.5 s; remove stall at 2.5 s; HUP to line at 5 s"


ODD = {
    "nothing measured": [],
    "only failures": [Measured(trial="small", repeat=0, failure="it did not start")],
    "no figures": [Measured(trial="small", repeat=0)],
    "not a number": [
        Measured(
            trial="small",
            repeat=0,
            figures=dict.fromkeys(("requests", "served", "gateway", "latency_ms.max", "backlog.app"), math.nan),
            latencies_ms=[math.nan, math.inf, -1.0],
            timeline=[(math.nan, 1.0, "served"), (0.0, math.nan, "unheard of"), (0.0, math.inf, "late")],
            shares={"1": math.nan},
            steps=[{}, {"rate_per_s": math.nan}, {"rate_per_s": 1.0, "per_s": math.nan}],
        )
    ],
    "zeros": [
        Measured(
            trial="small",
            repeat=0,
            figures=dict.fromkeys(("requests", "served", "gateway", "latency_ms.max", "backlog.app"), 0.0),
            latencies_ms=[0.0],
            timeline=[(0.0, 0.0, "served")],
            shares={"1": 0.0},
            steps=[{"rate_per_s": 0.0, "requests": 0.0, "per_s": 0.0}],
        )
    ],
    "one of each": [
        Measured(
            trial="small",
            repeat=0,
            figures={"requests": 1.0, "served": 1.0, "latency_ms.max": 5.0},
            latencies_ms=[5.0],
            timeline=[(0.0, 5.0, "served")],
            shares={"1": 1.0},
            steps=[{"rate_per_s": 1.0, "requests": 1.0, "per_s": 1.0, "failed": 0.0}],
        )
    ],
}


@pytest.mark.parametrize("kind", results.KINDS)
@pytest.mark.parametrize("measured", ODD.values(), ids=ODD)
def test_no_picture_breaks(result: Result, kind: str, measured: list[Measured]) -> None:
    odd = msgspec.structs.replace(result, measured=measured)
    with canvas.style():
        for width in (canvas.WIDE, canvas.NARROW):
            sheet = plots.draw(odd, Plot(kind=kind, title="$x_1$ & <b> 数 \x00"), width, "$x_1$ & <b>")
            drawn = ElementTree.fromstring(canvas.svg(sheet))
            assert "$x_1$ & <b>" in " ".join(drawn.itertext())


@pytest.mark.parametrize("measured", ODD.values(), ids=ODD)
def test_no_page_breaks(result: Result, measured: list[Measured], tmp_path: Path) -> None:
    scenario = msgspec.structs.replace(result.scenario, plots=[], table=[])
    odd = msgspec.structs.replace(result, scenario=scenario, measured=measured)
    page = Reader(report.render(odd, tmp_path).read_text())
    assert "A burst, a unix socket, and 128 places" in page.text


def test_an_experiment_of_ones_own_is_called_by_its_file(result: Result, tmp_path: Path) -> None:
    scenario = msgspec.structs.replace(result.scenario, plots=[])
    own = msgspec.structs.replace(result, name="my shop", scenario=scenario, measured=[])
    page = Reader(report.render(own, tmp_path).read_text())
    assert "stanchion-lab run 'my shop.toml' --full --repeats 3" in page.text


def test_an_index_leads_to_each_page_and_shows_its_first_picture(rendered: Path, result: Result) -> None:
    index = report.render_index({rendered: result}, rendered.parent.parent)
    found = Reader(index.read_text())
    assert "2 of 5 claims hold" in found.text and "At 128 some requests fail : holds" in found.text
    assert {link for link in found.links if not link.startswith("data:")} == {
        f"{rendered.parent.name}/report.html",
        f"{rendered.parent.name}/1-outcomes.svg",
    }
    index.unlink()


def test_an_index_leads_also_where_a_name_has_signs_of_a_link(result: Result, tmp_path: Path) -> None:
    index = report.render_index({tmp_path / "100% #1" / "report.html": result}, tmp_path)
    links = [link for link in Reader(index.read_text()).links if not link.startswith("data:")]
    assert {urlsplit(link).path for link in links} == set(links)
    assert {unquote(link) for link in links} == {"100% #1/report.html", "100% #1/1-outcomes.svg"}


@NEEDS_CHROMIUM
def test_a_browser_has_nothing_to_complain_of(rendered: Path) -> None:
    printed, said = browse(rendered.as_uri(), "enable-logging=stderr", "window-size=350,800", "dump-dom")
    # The browser complains of a slow machine, too, from a page of its own.
    complaints = [line for line in said.splitlines() if "CONSOLE" in line and "source: chrome://" not in line]
    assert not complaints
    assert printed.rstrip().endswith("</html>") and "How to read it" in printed
