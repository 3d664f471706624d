"""Names and numbers as a reader wants them."""

import math

import pytest

from stanchion_lab.report import words
from stanchion_lab.result import Verdict
from stanchion_lab.scenario import Claim, Trial


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-3.0, "-3"),
        (1234567.0, "1,234,567"),
        (1234.6, "1,235"),
        (12.345, "12.3"),
        (0.5, "0.5"),
        (0.01234, "0.0123"),
        (math.nan, words.NOTHING),
        (math.inf, "∞"),
    ],
)
def test_a_number_has_three_digits_that_say_something(value: float, shown: str) -> None:
    assert words.number(value) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("gateway", "502 or 504"),
        ("latency_ms.p99", "latency of 99 % (p99)"),
        ("latency_ms.p99.9/slow", "latency of 99.9 % (p99.9), /slow"),
        ("latency_ms.max/a/b", "longest latency, /a/b"),
        ("status.418", "answers 418"),
        ("kernel.ListenOverflows", "kernel: ListenOverflows"),
        ("log.web.errno.11", "errno 11 (EAGAIN) in the log of web"),
        ("log.web.status.502", "502 in the log of web"),
        ("log.web.requests", "requests in the log of web"),
        ("waiting_max.app", "queue of app, peak"),
        ("share.max", "largest share of a worker"),
        ("behind_ms.p99", "how late the client was, p99"),
        ("queues.app", "number of queues of app"),
        ("unsent", "what the client could not begin"),
        ("unheard.of", "unheard.of"),
    ],
)
def test_a_figure_has_words(name: str, shown: str) -> None:
    assert words.figure(name) == shown


@pytest.mark.parametrize(
    ("name", "unit"),
    [("latency_ms.p99/slow", "ms"), ("behind_ms.max", "ms"), ("cpu_s.app", "s"), ("best_per_s", "/s"), ("served", "")],
)
def test_a_figure_has_its_unit(name: str, unit: str) -> None:
    assert words.unit(name) == unit


@pytest.mark.parametrize(
    ("holds", "shown"),
    [
        ([], "This experiment makes no claim: it only shows."),
        ([True], "The one claim holds."),
        ([None], "The one claim was not measured."),
        ([True, True], "All 2 claims hold."),
        ([True, False, True], "2 of 3 claims hold, 1 does not."),
        ([True, False, False, None], "1 of 4 claims holds, 2 do not, 1 was not measured."),
    ],
)
def test_verdicts_in_short(holds: list[bool | None], shown: str) -> None:
    claim = Claim(text="so", of="a:served", be=">", than=0)
    assert words.in_short([Verdict(claim, one, 1.0, 2.0) for one in holds]) == shown


def test_trials_of_one_title_are_told_apart() -> None:
    trials = [
        Trial(name=name, title=title, servers=["app"], load="burst")
        for name, title in (("one", "same"), ("two", "same"), ("three", "other"))
    ]
    assert words.trial_titles(trials) == {"one": "same (one)", "two": "same (two)", "three": "other"}


def test_the_reading_is_paragraphs_lists_and_code_and_no_markup_of_its_own() -> None:
    text = "One\ntwo `a<b`.\n\n- first\n- <i>second</i>\n\nLast \x1b[0m"
    assert words.paragraphs(text) == (
        "<p>One two <code>a&lt;b</code>.</p>\n<ul><li>first</li><li>&lt;i&gt;second&lt;/i&gt;</li></ul>\n"
        "<p>Last \N{REPLACEMENT CHARACTER}[0m</p>"
    )
