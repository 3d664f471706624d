"""Applications that others wrote do under stanchion, with no flag, what they do under their usual server.

The tests of one application share its two servers, and run in the order of this file. The last word of a test's name is
its column in the report.
"""

import re
import signal
import subprocess
from collections.abc import Callable

import psutil
import pytest

from bigapps.application import Application
from bigapps.client import Answer
from bigapps.compare import Masks, added, differences
from bigapps.memory import memory_bytes
from bigapps.pair import NotReady, Pair, Side
from support.chromium import CHROMIUM, NEEDS_CHROMIUM
from support.devtools import tab
from support.patience import PATIENCE_S, eventually
from support.steady import Steady

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.own("each has a usual server of its own to be compared with"),
]

LEAVES_WITHIN_S = 5.0
"""Docker kills after 10 s. With nothing running there is nothing to wait for."""
RELOADED_WITHIN_S = 5 * PATIENCE_S
"""The time limit of a HUP, beside the time that the application takes to start."""
GONE_WITHIN_S = 60.0
"""Then it is killed, whichever it is."""

OWN_BYTES = 8 << 20
"""The memory that master and acceptor may cost, which the usual servers do not have."""
NOISE = 0.02
"""The share by which the memory of the same server differs from one start to the next."""
LOADED_AT_MOST = 1.1
"""Bytes that the browser loads, beside those under the usual server: a compression that is lost costs more."""

UNDER_WAY_MAX = 4
"""Clients of the light load; a killed worker may cost each the one request that it had under way."""

Figure = Callable[[str, object], None]


@pytest.fixture
def figure(record_property: Figure) -> Figure:
    return record_property


def test_app_starts(application: Application, begun: Pair | NotReady, figure: Figure) -> None:
    if isinstance(begun, NotReady):
        pytest.fail(str(begun), pytrace=False)
    figure("ready after s", both(begun, lambda side: f"{side.ready_after_s:.1f}"))


def test_app_preloads(application: Application, pair: Pair) -> None:
    if not application.preloads:
        pytest.skip("its import leaves what no fork takes along")
    said = [line for line in pair.ours.server.log.lines() if "the app is not preloaded" in line]
    assert not said, "\n".join(said)


def test_answers_to_requests(pair: Pair, figure: Figure) -> None:
    pair.visited()
    figure("median ms", both(pair, lambda side: f"{side.median_ms():.1f}"))
    agree("request", pair)


def test_answers_to_uploads(pair: Pair) -> None:
    agree("upload", pair)


def test_answers_in_streams(pair: Pair) -> None:
    agree("stream", pair)


def test_answers_over_websockets(pair: Pair) -> None:
    agree("websocket", pair)


@pytest.fixture(scope="module")
def looks(begun: Pair | NotReady) -> list["Look"]:
    """A browser's look at each; none if the application has no page."""
    if isinstance(begun, NotReady) or not begun.application.page:
        return []
    return [look(begun.usual), look(begun.ours)]


@NEEDS_CHROMIUM
def test_text_and_console_of_the_page(pair: Pair, looks: list["Look"], figure: Figure) -> None:
    page = pair.application.page
    if not page:
        pytest.skip("it has no page")
    usual, ours = looks
    figure("errors in the console", f"{len(usual.errors)} / {len(ours.errors)}")
    shown = page.click[-1].until if page.click else page.until
    assert shown in usual.text, f"under the usual server the page does not show {shown!r}: {usual}"
    assert shown in ours.text, f"the page does not show {shown!r}: {ours}"
    assert added(usual.errors, ours.errors) == []
    assert ours.text == usual.text


@NEEDS_CHROMIUM
def test_bytes_that_the_page_loaded(pair: Pair, looks: list["Look"], figure: Figure) -> None:
    if not looks:
        pytest.skip("it has no page")
    usual, ours = looks
    figure("page kB", f"{usual.loaded_bytes // 1000} / {ours.loaded_bytes // 1000}")
    more = f"{ours.loaded_bytes} bytes, under the usual server {usual.loaded_bytes}"
    assert ours.loaded_bytes <= LOADED_AT_MOST * usual.loaded_bytes, more


def test_complaints_in_the_log(pair: Pair) -> None:
    """An application may print what it likes under both; ours adds no error and no traceback."""
    pair.visited()
    usual, ours = (complaints(side) for side in pair.sides)
    assert len(ours) <= len(usual), f"{len(ours)}, under the usual server {len(usual)}\n" + "\n".join(ours)


def test_size_of_memory(pair: Pair, figure: Figure) -> None:
    pair.visited()
    usual, ours = (side.memory_bytes() for side in pair.sides)
    figure("memory MB", f"{usual / 1e6:.0f} / {ours / 1e6:.0f}")
    allowed = usual * (1 + NOISE) + OWN_BYTES
    assert ours <= allowed, f"{ours / 1e6:.0f} MB, the usual server {usual / 1e6:.0f} MB: {tree(pair.ours)}"


def test_nothing_lost_by_a_reload(pair: Pair) -> None:
    server = pair.ours.server
    mark = server.log.mark()
    with load(pair.ours) as steady:
        steady.more(3)
        server.signal(signal.SIGHUP)
        within_s = RELOADED_WITHIN_S + 2 * pair.application.start_within_s
        server.log.wait(r"reloaded: generation (\d+) serves", mark, within_s=within_s)
        steady.more(3)
    steady.assert_no_failure()


def test_little_lost_by_a_worker_that_is_killed(pair: Pair, figure: Figure) -> None:
    """502 for what it had under way, and nothing else: no connection is reset, and another worker comes."""
    with load(pair.ours, fine=(200, 502)) as steady:
        steady.more(3)
        before = workers(pair.ours)
        # Workers of the generation before a reload may still be leaving.
        max(before, key=psutil.Process.create_time).kill()
        eventually(
            lambda: any(worker not in before for worker in workers(pair.ours)),
            "another worker is there",
            pair.application.start_within_s,
        )
        # It may have to import the application.
        steady.more(3, pair.application.start_within_s)
    steady.assert_no_failure()
    lost = steady.statuses()[502]
    figure("502 at kill -9", lost)
    assert lost <= UNDER_WAY_MAX


def test_how_it_leaves(pair: Pair, figure: Figure) -> None:
    """Stop both servers with nothing running, after a browser has been there; the other too if ours stays too long."""
    took: list[float] = []
    for side in pair.sides:
        if pair.application.page and CHROMIUM:
            look(side)
        try:
            took.append(side.leave(GONE_WITHIN_S))
        except (AssertionError, subprocess.TimeoutExpired):
            took.append(float("inf"))
    usual_s, ours_s = took
    figure("TERM s", f"{usual_s:.1f} / {ours_s:.1f}")
    assert ours_s <= LEAVES_WITHIN_S, f"{ours_s:.1f} s, the usual server {usual_s:.1f} s\n{pair.ours.log_end()}"


# ---- what they share


def agree(kind: str, pair: Pair) -> None:
    """Both have answered everything of this kind, as the file says, and alike."""
    asks = pair.application.asks(kind)
    if not asks:
        pytest.skip(f"its file has no {kind}")
    pair.visited()
    complaints = []
    for ask in asks:
        usual, ours = (side.answers[ask.what] for side in pair.sides)
        masks = Masks([*pair.application.mask, *ask.mask])
        sides = ((usual, pair.usual.own), (ours, pair.ours.own))
        found = differences(*sides, masks, pair.application.ignored_fields, ask.same_body)
        if not found and not expected(usual, ask.status):
            found = [f"both answer {usual.status}, which the file does not expect: {usual.body[:300]!r}"]
        complaints += [f"{ask.what} ({ask.path}): {one}" for one in found]
    assert not complaints, "\n".join(complaints)


def expected(answer: Answer, status: int | None) -> bool:
    return answer.status == status if status else 100 <= answer.status < 400


class Look:
    """A browser's view of the page of one server."""

    def __init__(self, text: str, errors: list[str], loaded_bytes: int) -> None:
        self.text = text
        self.errors = errors
        self.loaded_bytes = loaded_bytes

    def __str__(self) -> str:
        return f"it shows {self.text[:500]!r}, and its console {self.errors[:5]}"


def look(side: Side) -> Look:
    page = side.application.page
    assert page
    masks = Masks([*side.application.mask, *page.mask])
    with tab(f"{side.url}{page.path}") as browser:
        text = browser.settled(page.until)
        for click in page.click:
            browser.click(click.selector)
            text = browser.settled(click.until)
        # A browser asks for this file by itself, at a time of its own.
        errors = [masks.hide(error, side.own) for error in browser.errors if "/favicon.ico" not in error]
        return Look(masks.hide(text, side.own), sorted(errors), browser.loaded_bytes)


def both(pair: Pair, of: Callable[[Side], str]) -> str:
    return " / ".join(map(of, pair.sides))


def load(side: Side, fine: tuple[int, ...] = (200,)) -> Steady:
    """Light: the cores are there for the deploy."""
    return Steady(
        [side.server.address],
        each=UNDER_WAY_MAX // 2,
        fine=fine,
        path=side.application.ready,
        host=f"127.0.0.1:{side.port}",
    )


def workers(side: Side) -> list[psutil.Process]:
    return side.server.of_name("stanchion-work")


def tree(side: Side) -> str:
    sizes = [f"{one.name()} {memory_bytes([one]) / 1e6:.0f} alone" for one in side.server.processes()]
    return ", ".join(sizes)


COMPLAINT = re.compile(
    r"Traceback \(most recent call last\)|\[ERROR\]|\[CRITICAL\](?!.* the stacks of worker)|^(?:ERROR|CRITICAL):"
    r"|panicked at"
)
"""A complaint of either server, or of an application's own logging in their format. Our server writes stacks of an
event loop that has stood for seconds, as it does where a core is busy: that is no fault."""
SHOWN_LINES = 25
"""The lines of the log that are shown from a complaint on."""


def complaints(side: Side) -> list[str]:
    """Errors and tracebacks, each with some of what follows it."""
    lines = side.server.log.lines()
    return ["\n".join(lines[at : at + SHOWN_LINES]) for at, line in enumerate(lines) if COMPLAINT.search(line)]
