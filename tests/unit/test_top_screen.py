"""The screen of `stanchion top`, as text: what stands on it, what fits, and what each key does to it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stanchion.output import printable
from stanchion.top.keys import HELP, Do, State, press, split
from stanchion.top.lines import KEYS, Chosen, View, screen
from stanchion.top.model import Model, Order, model
from stanchion.top.status import Seat, parse
from stanchion.top.words import duration, encodable, size
from support.admin import histogram, lane, seat, status, worker


def looked(before: dict[str, Any] | None = None, **now: Any) -> Model:
    earlier = parse(status(**before)) if before is not None else None
    return model(earlier, parse(status(**{"now_us": 7_000_000, **now})))


def drawn(found: Model, view: View = View(), width: int = 80, height: int | None = None) -> list[str]:  # noqa: B008
    return [line.plain.rstrip() for line in screen(found, view, width, height)]


BUSY = looked(
    {"wait_us": histogram(5, 1, 0, 0), "service_us": histogram(0, 0, 0, 0)},
    line={
        "waiting": 1_812,
        "oldest_wait_us": 3_210_000,
        "over_target": True,
        "lanes": [lane("shop", waiting=1_800, drain_per_s=100.5, over_target=True), lane("health", waiting_max=20)],
    },
    requests={"arrived": 300, "answered": 200, "refused_line_full": 40, "broken_off": 2, "abandoned_waiting": 3},
    wait_us=histogram(50, 100, 700, 0),
    service_us=histogram(0, 300, 1, 1),
    seats=[seat(0, 0, 12_000_000, "/slow?a=1", served=7), seat(1, 0, served=9), seat(2, 0, state="empty", pid=None)],
    listeners=[
        {"address": "http://127.0.0.1:8000", "backlog_asked": 2048, "backlog": 128, "queued": 12},
        {"address": "unix:/run/shop.sock", "backlog_asked": 2048, "backlog": None, "queued": None},
    ],
    ready=False,
    not_ready_because="1812 wait",
    server={"restarts": {"killed": 2, "timeout": 0}},
)

WHOLE = """\
stanchion 0.1.0 · serving · generation 3 · master 100 · up 1h 2min
NOT READY: 1812 wait
line     ██████████████████░░ 1812 of 2048 waiting, oldest 3.21 s  OVER TARGET
a second 150 arrive, 100 drain, 100 answered, 1.50 gone, broken_off 1.00,
         20.0 refused (line_full 20.0)
lane    priority  waiting   bound  oldest  handed out  reserved seats  drain/s
shop           1     1800  shared    0 µs           0               0  100
health         1        0      20    0 µs           0               0  0
latency         1.00 ms             p50      p90      p99      max
wait    lately  ▁▁▁▂▂▂███       2.79 ms  3.76 ms  3.98 ms        -
        ever    ▁▁▁▂▂▂███       1.00 ms  8.00 ms  16.0 ms  16.0 ms
service lately     ███▁▁▁▁▁▁    1.50 ms  1.91 ms  2.00 ms        -
        ever       ███▁▁▁▁▁▁    1.00 ms  8.00 ms  16.0 ms  16.0 ms
listener               queued  backlog  asked
http://127.0.0.1:8000      12      128  2048  cut: see somaxconn
unix:/run/shop.sock         -        -  2048
1 of 3 seats busy · 0 of 10000 connections (new 0, reading 0, busy 0, idle 0) ·
restarts: killed 2
worker  pid  nth       rss  state     age  served  request
     0  200    1  50.0 MiB   busy  12.0 s       7  GET /slow?a=1
     1  201    1         -   idle       -       9
     2    -    1         -  empty       -       0"""


def test_everything_is_on_the_screen():
    # The quantiles of late by hand: 844 waited, of which 99 up to 2 ms and 700 from there to 4.
    assert drawn(BUSY) == WHOLE.splitlines()


RECENT_US = {"line": 310, "core": 20, "gil": 0, "cpu": 50, "elsewhere": 620}


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        (
            {"verdict": "more_threads", "words": "seats full", "recent_us": RECENT_US},
            ["time     line 31 %, core 2 %, GIL 0 %, CPU 5 %, elsewhere 62 % · seats full"],
        ),
        (
            {
                "verdict": "loops_free",
                "words": "loops\x1bfree",
                "recent_us": {**dict.fromkeys(RECENT_US, 0), "line": 7},
            },
            ["time     loops\\x1bfree"],
        ),
        ({"verdict": "unknown", "words": "unknown", "recent_us": dict.fromkeys(RECENT_US, 0)}, []),
    ],
)
def test_one_line_says_where_the_time_goes(causes: dict[str, Any], expected: list[str]) -> None:
    lines = drawn(looked(causes=causes))
    assert [line for line in lines if line.startswith("time ")] == expected


@pytest.mark.parametrize(
    ("elastic", "shown"),
    [
        ({}, "workers 7 of 4 to 32"),
        ({"held_back": "throughput"}, "workers 7 of 4 to 32, held back: throughput"),
        ({"held_back": "max", "pinned": True}, "workers 7 of 4 to 32, fixed by a command"),
    ],
)
def test_a_number_of_workers_that_follows_the_line_is_in_the_head(elastic, shown):
    plain = {"min": 4, "max": 32, "wanted": 7, "pinned": False, "held_back": None}
    [head, *_] = drawn(looked(elastic={**plain, **elastic}), width=160)
    assert head.endswith(f" · up 1h 2min · {shown}")


LOOPS = [
    worker(
        *(number, 50 << 20),
        seats=1_000,
        busy=number,
        event_loop={"lag_us": lag_us, "lag_max_us": 2_000_000, "sessions": 7 * number},
    )
    for number, lag_us in enumerate([0, 1_500, 120_000, 1_000_000, 20])
]


def test_of_event_loops_each_has_a_line_and_the_seats_are_counted():
    found = looked(seats=[seat(1, 7, 5_000, "/a")], workers=LOOPS, seat_counts={"busy": 10, "idle": 4_990, "empty": 0})
    lines = drawn(found, width=100)
    assert "10 of 5000 seats busy · 0 of 10000 connections (new 0, reading 0, busy 0, idle 0)" in lines
    head = next(number for number, line in enumerate(lines) if line.startswith("event loop"))
    assert [" ".join(line.split()) for line in lines[head:]] == [
        "event loop pid rss running of WebSockets lag at most",
        "3 203 50.0 MiB 3 1000 21 1.00 s 2.00 s",
        "2 202 50.0 MiB 2 1000 14 120 ms 2.00 s",
        "1 201 50.0 MiB 1 1000 7 1.50 ms 2.00 s",
        "4 204 50.0 MiB 4 1000 28 20.0 µs 2.00 s",
        "0 200 50.0 MiB 0 1000 0 0 µs 2.00 s",
        "worker seat pid nth rss state age served request",
        "1 7 201 1 50.0 MiB busy 5.00 ms 0 GET /a",
        "… 9 more seats",
    ]
    shown = screen(found, View(), 100, None)[head + 1 : head + 4]
    assert [[span.style for span in line.spans] for line in shown] == [["red"], ["yellow"], []]


def test_what_websockets_do_is_told_of_event_loops():
    before = {"events": {"sessions_begun": 5, "sessions_closed_by_app": 1, "session_messages_sent": 10}}
    events = {
        "sessions_begun": 9,
        "sessions_closed_by_app": 3,
        "sessions_closed_by_client": 0,
        "sessions_cut": 1,
        "session_messages_received": 2,
        "session_messages_sent": 40,
    }

    def said(found: Model) -> list[str]:
        return [line for line in drawn(found, width=120) if re.match(r"\d+ WebSockets", line)]

    assert said(looked(workers=LOOPS)) == ["70 WebSockets"]
    rates = "a second 2.00 opened, 1.50 ended (by_app 1.00, cut 0.50), messages 1.00 in, 15.0 out"
    assert said(looked(before, workers=LOOPS, events=events)) == [f"70 WebSockets · {rates}"]
    assert said(looked(before, events=events)) == [], "there are threads"
    gone_back = {**events, "session_messages_sent": 9}
    assert said(looked({"events": events}, workers=LOOPS, events=gone_back)) == ["70 WebSockets"]


def test_gevent_has_no_websockets_to_tell_of():
    loops = [
        worker(number, 50 << 20, seats=9, event_loop={"lag_us": 0, "lag_max_us": 0, "sessions": None})
        for number in range(2)
    ]
    before = {"events": {"sessions_begun": 0}}
    lines = drawn(looked(before, workers=loops, events={"sessions_begun": 0}), width=120)
    assert not [line for line in lines if "WebSockets" in line]
    head = next(number for number, line in enumerate(lines) if line.startswith("event loop"))
    assert [" ".join(line.split()) for line in lines[head : head + 2]] == [
        "event loop pid rss running of lag at most",
        "0 200 50.0 MiB 0 9 0 µs 0 µs",
    ]


def test_static_files_and_probes_are_no_trouble():
    ended = {"arrived": 20, "answered": 8, "static": 6, "probed": 4}
    (flow,) = [
        line for line in screen(looked({}, requests=ended), View(), 120, None) if line.plain.startswith("a second ")
    ]
    assert flow.plain.endswith("10.0 arrive, 0 drain, 4.00 answered, static 3.00, probed 2.00, 0 gone, 0 refused")
    assert "red" not in {span.style for span in flow.spans}


@pytest.mark.parametrize("height", range(1, 60))
def test_event_loops_and_seats_fit_whatever_there_is_of_them(height):
    many = looked(
        seats=[seat(1, number, 1_000) for number in range(200)],
        workers=LOOPS,
        seat_counts={"busy": 1_000, "idle": 4_000},
    )
    lines = drawn(many, View(live=True), 80, height)
    assert len(lines) == height
    if height >= 24:
        assert sum("busy  1.00 ms" in line for line in lines) >= 2
        assert any(line.startswith("… 9") and line.endswith("more seats") for line in lines), lines


JAM = "all 4 seats are busy, the longest for 14.2 s with GET /pay/in/some/longer/path, 3 more like it"


@pytest.mark.parametrize("height", [None, 24])
def test_at_80_columns_an_outage_says_why_and_nothing_of_it_is_cut(height):
    found = looked(
        {},
        standstill={"since_s": 12.5, "waiting": 10, "oldest_wait_s": 14.0, "why": JAM},
        line={"waiting": 10, "waiting_max": 10, "oldest_wait_us": 14_000_000},
        requests={"arrived": 4_400, "refused_line_full": 4_000, "refused_waited_too_long": 40, "refused_shed": 9},
        running_us={**histogram(0, 0, 0, 4), "max_us": 14_200_000},
        seats=[seat(worker, thread, 14_200_000, "/pay") for worker in range(2) for thread in range(2)],
    )
    lines = drawn(found, View(live=height is not None), 80, height)
    shown = " ".join(line.strip() for line in lines)
    assert f"{JAM}; the line has stood for 12.5 s" in shown
    assert "2024 refused (line_full 2000, waited_too_long 20.0, shed 4.50)" in shown
    assert "4 of 4 seats busy, the longest for 14.2 s" in shown
    assert "· STANDING ·" in lines[0] and "serving" not in lines[0]
    assert not [line for line in lines if line.endswith("…")]
    assert sum("GET /pay" in line for line in lines) == 5
    reds = [line.plain for line in screen(found, View(), 80, None) if line.style == "bold red"]
    assert any(line.startswith("all 4 seats") for line in reds)


def test_a_wide_screen_has_the_reasons():
    lines = drawn(BUSY, width=120)
    assert any(line.endswith("broken_off 1.00, 20.0 refused (line_full 20.0)") for line in lines)
    assert any(line.endswith("restarts: killed 2") for line in lines)


def test_the_first_look_has_no_rates():
    lines = drawn(looked(line={"lanes": [lane("default", drain_per_s=2.0)]}))
    assert "a second 2.00 drain; the rest takes a second look" in lines
    assert not any("lane " in line for line in lines), "one lane is the line"


def test_a_lane_with_a_maximum_of_seats_shows_how_many_of_them_it_has():
    streams = lane("streams", in_exchange=1, seats_max=2)
    lines = drawn(looked(line={"lanes": [lane("default", in_exchange=3), streams]}))
    shown = [line.split()[6:] for line in lines if line.startswith(("default", "streams"))]
    assert shown == [["3", "0", "0"], ["1", "of", "2", "0", "0"]]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (20, 3), (1, 1)])
def test_it_fits_whatever_there_is_of_it(width, height, live):
    many = looked(
        seats=[seat(worker, number, 1_000, "/日本語" * 50) for worker in range(30) for number in range(2)],
        line={"lanes": [lane(f"lane{number}" * 9) for number in range(30)]},
        listeners=[{"address": "x" * 300, "backlog_asked": 1, "backlog": 1, "queued": 0}] * 30,
        wait_us=histogram(*[1] * 40),
        not_ready_because="y" * 300,
        ready=False,
    )
    lines = screen(many, View(live=live), width, height)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)


def test_24_lines_have_room_for_seats():
    many = looked(
        seats=[seat(worker, 0) for worker in range(30)],
        line={"lanes": [lane(f"lane {number}") for number in range(30)]},
        listeners=[{"address": "x", "backlog_asked": 1, "backlog": 1, "queued": 0}] * 30,
    )
    lines = drawn(many, View(live=True), 80, 24)
    assert sum("idle   " in line for line in lines) >= 4, lines
    assert "… 28 more" in lines
    assert lines[-1] == KEYS and len(KEYS) <= 80


def rows(lines: Sequence[str]) -> list[str]:
    """The numbers of the workers of the seats that are shown."""
    head = next(number for number, line in enumerate(lines) if line.startswith("worker"))
    return [line.split()[0] for line in lines[head + 1 :] if line[:6].strip().isdigit()]


def test_the_chosen_seat_stays_in_sight_and_is_marked():
    many = looked(seats=[seat(worker, 0) for worker in range(30)])
    lines = screen(many, View(live=True, order=Order.WORKER, chosen=Chosen(29, 0, 229)), 80, 24)
    assert rows([line.plain for line in lines])[-1] == "29"
    marked = [line.plain for line in lines if any(span.style == "reverse" for span in line.spans)]
    assert [line.split()[0] for line in marked] == ["29"]


def test_what_a_client_wrote_is_no_order_to_the_terminal():
    lines = drawn(looked(seats=[seat(0, 0, 1, "/\x1b[2J\r\n\x9b\u202e\u2028\ud800é")]), width=120)
    assert lines[-1].endswith("GET /\\x1b[2J\\x0d\\x0a\\x9b\\u202e\\u2028\\ud800é")


@settings(deadline=None)
@given(st.text())
def test_printable_text_has_nothing_to_obey(text):
    shown = printable(text)
    assert all(character.isprintable() or character.isspace() for character in shown)
    assert not set(shown) & set(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)))


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "-"),
        (0, "0 µs"),
        (7, "7.00 µs"),
        (850, "850 µs"),
        (999.9, "1000 µs"),
        (12_340, "12.3 ms"),
        (3_210_000, "3.21 s"),
        (59_990_000, "60.0 s"),
        (60_000_000, "1min 0s"),
        (7_500_000_000, "2h 5min"),
        (190_000_000_000, "2d 4h"),
    ],
)
def test_durations(us, text):
    assert duration(us) == text


@pytest.mark.parametrize(
    ("number", "text"), [(None, "-"), (0, "0 B"), (1_023, "1023 B"), (50 << 20, "50.0 MiB"), (3 << 40, "3 TiB")]
)
def test_sizes(number, text):
    assert size(number) == text


def test_a_terminal_of_another_encoding_gets_what_it_can_show():
    assert encodable("▁█ µs · …é", "ascii") == b".# us , ~?"
    assert encodable("µ", "utf-8") == b"\xc2\xb5"


# ---- Keys


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("q", ["q"]),
        ("ab", ["a", "b"]),
        ("\x1b", ["\x1b"]),
        ("\x1b[A\x1bOBq", ["\x1b[A", "\x1bOB", "q"]),
        ("\x1b[5~\x1b[1;5Cx", ["\x1b[5~", "\x1b[1;5C", "x"]),
        ("\x1b[", ["\x1b["]),
    ],
)
def test_typed_keys_are_told_apart(typed, keys):
    assert split(typed) == keys


@settings(deadline=None)
@given(st.text())
def test_no_key_is_lost_or_breaks_it(typed):
    assert "".join(split(typed)) == typed
    state = State(View(live=True))
    for key in split(typed):
        state, _ = press(state, key, BUSY.status.seats, 24)


def pressed(
    *keys: str,
    state: State = State(View(live=True)),  # noqa: B008
    rows: int = 24,
    seats: Sequence[Seat] = BUSY.status.seats,
) -> tuple[State, Do]:
    do = Do.NOTHING
    for key in keys:
        state, do = press(state, key, seats, rows)
    return state, do


@pytest.mark.parametrize(("key", "order"), [("a", Order.AGE), ("w", Order.WORKER), ("s", Order.SERVED)])
def test_sorting(key, order):
    other = State(View(live=True, order=Order.SERVED if key != "s" else Order.AGE))
    assert pressed(key, state=other)[0].view.order == order


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (["j"], (1, 0)),
        (["\x1b[B", "\x1bOB"], (2, 0)),
        (["j", "j", "j", "j"], (2, 0)),
        (["j", "k"], (0, 0)),
        (["k"], (0, 0)),
        (["\x1b[6~"], (2, 0)),
        (["s", "j"], (0, 0)),
    ],
)
def test_choosing_a_seat(keys, chosen):
    found = pressed(*keys)[0].view.chosen
    assert found is not None and found[:2] == chosen


def test_a_worker_that_leaves_and_its_successor_are_chosen_each():
    two = looked(seats=[seat(0, 0, 9_000_000, "/old", pid=71), seat(0, 0, pid=72), seat(1, 0, pid=73)])

    def marked(chosen):
        lines = screen(two, View(live=True, order=Order.AGE, chosen=chosen), 80, 24)
        return [line.plain.split()[1] for line in lines if any(span.style == "reverse" for span in line.spans)]

    assert [marked(Chosen(0, 0, pid)) for pid in (71, 72)] == [["71"], ["72"]]
    # The cursor goes to the seat of the successor.
    assert marked(Chosen(1, 0, 4711)) == ["73"]
    assert pressed("j", "j", seats=two.status.seats)[0].view.chosen == Chosen(1, 0, 73)


@pytest.mark.parametrize(
    ("key", "do"),
    [("q", Do.QUIT), ("\x03", Do.QUIT), ("d", Do.DUMP), ("\x0c", Do.REDRAW), ("\x1a", Do.SUSPEND), ("x", Do.NOTHING)],
)
def test_what_else_a_key_asks_for(key, do):
    assert pressed(key)[1] is do


def test_without_seats_there_is_none_to_choose_or_dump():
    for key in ("d", "j"):
        assert press(State(View(live=True)), key, (), 24) == (State(View(live=True)), Do.NOTHING)


def test_pausing_and_going_on():
    assert pressed("p")[0].view.paused
    assert not pressed("p", " ")[0].view.paused


def test_a_page_moves_within_its_bounds_and_goes():
    page = State(View(live=True), page=tuple(map(str, range(100))))
    assert pressed("j", state=page)[0].first == 1
    assert pressed("k", state=page)[0].first == 0
    assert pressed("\x1b[6~", state=page)[0].first == 22
    assert pressed(*[" "] * 9, state=page)[0].first == 100 - 23
    assert pressed("d", state=page) == (page, Do.NOTHING)
    assert pressed("q", state=page) == (replace(page, page=None), Do.NOTHING)


def test_help_fits_the_width():
    assert pressed("?")[0].page == tuple(HELP)
    assert max(map(len, HELP)) < 80


def test_help_says_what_a_seat_is():
    assert any(line.split()[:4] == ["seat", "runs", "one", "request"] for line in HELP)
