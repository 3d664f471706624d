"""The rows that `stanchion top --any` makes of two looks at a host, and its screen."""

from dataclasses import replace

import pytest

from stanchion.doctor.facts import Facts, Listener, Network, Owner
from stanchion.top.board import HELP, KEYS, View, press, screen
from stanchion.top.keys import Do
from stanchion.top.sockets import Host, Look, Order, host, sort

LISTENERS = (
    Listener("tcp", "1.1.1.1:1", 1, waiting=5, backlog=4, drops=9, owners=(Owner(7, "x\x1b", ""), Owner(8, "x", ""))),
    Listener("tcp", "2.2.2.2:2", 2, waiting=50, backlog=100, drops=2),
    Listener("unix", "/run/\x1b[2J", 3, waiting=0, backlog=4, drops=None),
)


def look(at_s: float, *listeners: Listener) -> Look:
    return Look(Facts("6.1", (Network("this one", None, "net:[1]", listeners, {}, {}),)), at_s)


@pytest.mark.parametrize(
    ("before", "now", "grown"),
    [(2, 5, 3), (2, 2, 0), (None, None, None), (5, 2, None)],
    ids=["grown", "not grown", "not counted", "another socket of the same number"],
)
def test_growth_is_between_two_looks(before, now, grown):
    one = LISTENERS[0]
    found = host(look(1.0, replace(one, drops=before)), look(3.0, replace(one, drops=now)))
    assert (found.sockets[0].drops_grown, found.over_s) == (grown, 2.0)


def test_what_was_not_there_has_not_grown():
    found = host(look(1.0, LISTENERS[1]), look(2.0, *LISTENERS))
    assert [one.drops_grown for one in found.sockets] == [None, 0, None]
    assert host(None, look(2.0, *LISTENERS)).over_s is None


def test_the_worst_first():
    before = look(1.0, *(replace(one, drops=one.drops and 0) for one in LISTENERS[::-1]))
    sockets = host(before, look(2.0, *LISTENERS[::-1])).sockets
    orders = {order: [one.listener.inode for one in sort(sockets, order)] for order in Order}
    assert orders == {Order.WAITING: [1, 2, 3], Order.DROPS: [1, 2, 3], Order.ADDRESS: [3, 1, 2]}
    quiet = host(None, look(2.0, replace(LISTENERS[0], waiting=0), LISTENERS[1])).sockets
    assert [one.listener.inode for one in sort(quiet, Order.WAITING)] == [2, 1]


def many(number: int) -> Host:
    return host(None, look(0.0, *(replace(LISTENERS[0], address=f"1.1.1.1:{n:03}", inode=n) for n in range(number))))


@pytest.mark.parametrize("sockets", [0, 1, 2, 3, 7, 50])
@pytest.mark.parametrize("height", [1, 2, 3, 4, 5, 24])
@pytest.mark.parametrize("trouble", [None, "away"])
def test_it_fits(sockets, height, trouble):
    lines = screen(many(sockets), View(live=True, trouble=trouble), 30, height)
    assert len(lines) == height
    assert all(line.cell_len <= 30 for line in lines)
    assert lines[-1].plain == KEYS[:29] + "…"


def test_all_is_to_be_reached_and_counted():
    shown = [line.plain for line in screen(many(50), View(live=True), 80, 24)]
    rows = [line for line in shown if "1.1.1.1:" in line]
    assert f"… {50 - len(rows)} more" in shown
    view, do = View(live=True), Do.NOTHING
    for _ in range(3):
        view, do = press(view, "\x1b[6~", 50, 24)
    shown = [line.plain for line in screen(many(50), view, 80, 24)]
    assert shown[-2].endswith("1.1.1.1:049") and do is Do.NOTHING
    assert press(view, "\x1b[A", 50, 24)[0].first == view.first - 1
    assert press(View(), "k", 50, 24)[0].first == 0


def test_nothing_that_a_terminal_would_obey():
    lines = screen(host(None, look(0.0, *LISTENERS)), View(), 120, None)
    text = "\n".join(line.plain for line in lines)
    assert "unix:/run/\\x1b[2J" in text and "x\\x1b (7) +1" in text and "\x1b" not in text


@pytest.mark.parametrize(("key", "do"), [("q", Do.QUIT), ("\x03", Do.QUIT), ("\x1a", Do.SUSPEND), ("\x0c", Do.REDRAW)])
def test_keys_that_are_for_the_terminal(key, do):
    assert press(View(), key, 3, 24) == (View(), do)


def test_the_help_is_a_page_of_its_own_that_moves_and_goes():
    shown, do = press(View(order=Order.DROPS, first=3), "?", 50, 24)
    assert (shown.help, do) == (0, Do.NOTHING)
    moved, do = press(shown, "j", 50, 24)
    assert (moved.help, moved.first, do) == (1, 3, Do.NOTHING)
    assert press(moved, "w", 50, 24) == (moved, Do.NOTHING), "no key of the screen"
    assert press(moved, "\x0c", 50, 24) == (moved, Do.REDRAW)
    for key in ("q", "h"):
        assert press(moved, key, 50, 24) == (replace(moved, help=None), Do.NOTHING)


def test_the_help_fits_the_width_and_has_every_column_and_key():
    assert max(map(len, HELP)) < 80
    named = {line.split()[0].rstrip(",") for line in HELP if line.startswith("  ") and not line.startswith("   ")}
    heads = screen(many(1), View(), 80, 24)[1].plain.split()
    assert {*heads, "w", "d", "a", "p", "q"} <= named
