"""Several hosts as one: the sums that `stanchion top --hosts` makes, its screen, its past, and who may ask its page."""

from typing import Any

import pytest

from stanchion.effective import UsageError
from stanchion.top import hosts_watch
from stanchion.top.hosts import TEXT_MAX, AllHosts, Order, Seen, as_json, sort, summed
from stanchion.top.hosts_board import HELP, KEYS, View, press, screen
from stanchion.top.hosts_page import is_ours
from stanchion.top.hosts_past import OwnSample, before, own_samples, sample
from stanchion.top.keys import Do
from stanchion.top.model import model
from stanchion.top.source import Failed, place
from stanchion.top.status import Unexpected, parse
from support.admin import histogram, lane, seat, status


def host(name: str, earlier: dict[str, Any] | None = None, **now: Any) -> Seen:
    first = parse(status(**earlier)) if earlier is not None else None
    return Seen(name, model(first, parse(status(**{"now_us": 7_000_000, **now}))), None, 0.0)


def silent(name: str, trouble: str = "no process listens there", silent_s: float = 12.0) -> Seen:
    return Seen(name, None, trouble, silent_s)


NONE = {"wait_us": histogram(0, 0, 0), "service_us": histogram(0, 0, 0)}

A = host(
    "10.0.0.9:9100",
    NONE,
    demand={"seats_wanted_10s": 2.5},
    line={"waiting": 7, "waiting_max": 100, "oldest_wait_us": 3_000, "lanes": [lane("x", drain_per_s=5.0)]},
    requests={"arrived": 20, "answered": 16, "refused_line_full": 4},
    seats=[seat(0, 0, 2_000_000, "/a"), seat(1, 0)],
    wait_us=histogram(98, 0, 0),
    service_us=histogram(0, 1, 0),
)
B = host(
    "10.0.0.10:9100",
    NONE,
    demand={"seats_wanted_10s": 4},
    line={"waiting": 5, "waiting_max": 50, "oldest_wait_us": 9_000, "lanes": [lane("x", drain_per_s=2.0)]},
    requests={"arrived": 4, "answered": 2, "refused_line_full": 1, "refused_shed": 1},
    seats=[seat(0, 0, 1_000, "/b")],
    wait_us=histogram(0, 0, 2),
    service_us=histogram(0, 1, 0),
    generation=4,
    ready=False,
    not_ready_because="draining",
)
C = silent("10.0.0.11:9100")
ALL = summed([A, B, C])


def test_what_can_be_added_up_is_and_the_oldest_is_the_oldest_of_all():
    total = ALL.total
    assert (total.busy, total.seats, total.waiting, total.waiting_max, total.oldest_wait_us) == (2, 3, 12, 150, 9_000)
    assert (total.arrivals_per_s, total.refused_per_s, total.seats_wanted) == (12.0, 3.0, 6.5)
    assert ALL.rates and ALL.rates.refused == {"line_full": 2.5, "shed": 0.5}
    assert sum(one.drain_per_s for one in ALL.line.lanes) == 7.0
    assert ALL.ready == 1


def test_quantiles_are_of_all_requests_and_no_sum_or_mean_of_those_of_hosts():
    # 98 waited up to 1 ms, 2 from 2 to 4: the 95th of these 100 is in the first bucket, the 99th in the last.
    lately = ALL.wait.lately
    assert lately and lately.count == 100
    assert lately.p95_us == pytest.approx(1_000 * 95 / 98)
    assert lately.p99_us == pytest.approx(3_000)
    assert B.model and B.model.wait.lately and B.model.wait.lately.p95_us > 3_800


def test_hosts_of_other_buckets_have_no_quantiles_together():
    other = host("other", {"wait_us": histogram(0, 0, 0, first_us=7)}, wait_us=histogram(1, 1, 1, first_us=7))
    found = summed([A, other])
    assert found.wait.lately and found.wait.lately.count == found.wait.ever.count == 0
    assert found.total.wait_p95_us is None


@pytest.mark.parametrize("hosts", [[], [C], [host("new")]])
def test_what_is_not_known_is_none(hosts):
    total = summed(hosts).total
    assert (total.arrivals_per_s, total.refused_per_s, total.wait_p95_us, total.seats_wanted) == (None,) * 4
    assert total.waiting == 0


def test_a_host_that_is_new_takes_nothing_from_the_rates_of_the_others():
    assert summed([A, host("new")]).total.arrivals_per_s == 10.0


def test_for_scripts():
    data = as_json(ALL)
    total, hosts = data["total"], data["hosts"]
    assert isinstance(total, dict) and isinstance(hosts, list)
    assert (total["hosts"], total["answering"], total["ready"], total["waiting"]) == (3, 2, 1, 12)
    assert hosts[1]["not_ready_because"] == "draining" and hosts[1]["seats_wanted"] == 4.0
    assert hosts[2] == {"host": C.name, "trouble": "no process listens there", "silent_s": 12.0}
    long = as_json(summed([host("x", version="v" * 1_000)]))["hosts"]
    assert isinstance(long, list) and len(long[0]["version"]) == TEXT_MAX


@pytest.mark.parametrize("demand", [{}, None, {"seats_wanted_10s": -1}, {"seats_wanted_10s": True}])
def test_seats_wanted_are_a_figure_or_not_there(demand):
    with pytest.raises(Unexpected):
        parse(status(demand=demand))


# ---- The screen


def drawn(found: AllHosts, view: View = View(), width: int = 110, height: int | None = None) -> list[str]:  # noqa: B008
    return [line.plain.rstrip() for line in screen(found, view, width, height)]


WHOLE = """\
3 hosts · 2 answer · 1 ready
10.0.0.10:9100: NOT READY: draining
line     ██░░░░░░░░░░░░░░░░░░ 12 of 150 waiting, oldest 9.00 ms
a second 12.0 arrive, 7.00 drain, 9.00 answered, 0 gone, 3.00 refused (line_full 2.50, shed 0.50)
latency         1.00 ms          p50      p90      p99      max
wait    lately  ███   ▁▁▁     510 µs   918 µs  3.00 ms        -
        ever    ███   ▁▁▁     510 µs   918 µs  3.00 ms  8.00 ms
service lately     ███       1.50 ms  1.90 ms  1.99 ms        -
        ever       ███       1.50 ms  1.90 ms  1.99 ms  8.00 ms
host                 state  seats  waiting   oldest  arrive/s  refused/s  wait p95  wanted  gen  version
all that answer               2/3       12  9.00 ms      12.0       3.00    969 µs     6.5
10.0.0.9:9100      serving    1/2        7  3.00 ms      10.0       2.00    950 µs     2.5    3  0.1.0
10.0.0.10:9100   NOT READY    1/1        5  9.00 ms      2.00       1.00   3.90 ms     4.0    4  0.1.0
10.0.0.11:9100   silent 12.0 s: no process listens there"""


def test_one_table_and_one_line_for_all():
    assert drawn(ALL) == WHOLE.splitlines()


@pytest.mark.parametrize("hosts", [0, 1, 2, 3, 7, 50])
@pytest.mark.parametrize("height", [1, 2, 5, 11, 14, 24])
def test_it_fits(hosts, height):
    found = summed([silent(f"10.0.0.{number}:1", "why\n" * 99) if number % 3 else A for number in range(hosts)])
    lines = screen(found, View(live=True, first=2), 40, height)
    assert len(lines) == height
    assert all(line.cell_len <= 40 for line in lines)
    assert lines[-1].plain == KEYS[:39] + "…"


def test_a_host_says_nothing_that_a_terminal_obeys():
    text = "\n".join(drawn(summed([host("x\x1b", version="\x1b[2J", state="\x07"), silent("y", "\x1b]0;t\x07")])))
    assert "\x1b" not in text and "\x07" not in text and "\\x1b[2J" in text


def test_many_that_are_not_ready_leave_room_for_the_rest():
    found = summed([host(f"h{number}", ready=False, not_ready_because="b" * 500) for number in range(40)])
    lines = drawn(found, View(live=True), 80, 24)
    assert "… and 38 more hosts that stand or are not ready" in lines
    assert sum(line.startswith("h") for line in lines) > 5


def test_the_worst_first():
    hosts = [C, A, B]
    names = {order: [one.name.split(":")[0][7:] for one in sort(hosts, order)] for order in Order}
    assert names == {
        Order.ADDRESS: ["11", "9", "10"],
        Order.WAITING: ["9", "10", "11"],
        Order.OLDEST: ["10", "9", "11"],
    }


def test_keys():
    view, do = press(View(first=3), "w", 50, 24)
    assert (view.order, view.first, do) == (Order.WAITING, 0, Do.NOTHING)
    assert press(view, "o", 50, 24)[0].order is Order.OLDEST
    assert press(view, "\x1b[6~", 50, 24)[0].first == 13
    assert press(View(first=30), "\x1b[6~", 50, 24)[0].first == 37, "no further than the last host"
    assert press(view, "p", 50, 24)[0].paused
    assert press(view, "q", 50, 24)[1] is Do.QUIT
    helped, _ = press(view, "?", 50, 24)
    assert helped.help == 0
    assert press(helped, "q", 50, 24)[0].help is None
    assert max(map(len, HELP)) < 80 and len(KEYS) < 80


# ---- The past


def test_a_sample_of_now():
    found = sample(ALL, 77)
    assert (found["at_us"], found["waiting"], found["busy"], found["seats"]) == (77, 12, 2, 3)
    assert found["rates"] == {"arrived": 12.0, "answered": 9.0, "refused": 3.0, "broken": 0.0, "gone": 0.0}
    assert found["wait_p99_us"] == pytest.approx(3_000)
    empty = sample(summed([C]), 77)
    assert empty["rates"] is None and empty["wait_p50_us"] is None


def own(age_s: float, arrived: int, waiting: int = 0, oldest_wait_us: int = 0) -> OwnSample:
    rest = dict.fromkeys(("answered", "refused", "broken", "gone", "busy", "seats", "longest_us"), 0)
    figures = {"arrived": arrived, "waiting": waiting, "oldest_wait_us": oldest_wait_us, **rest}
    return OwnSample(int(age_s * 1_000_000), figures)


def test_before_now_the_hosts_own_samples_are_added_up_second_by_second():
    a = [own(3.4, 100, 1, 50), own(2.3, 111, 2, 40), own(1.1, 123, 3, 30)]
    b = [own(2.2, 5, 10, 7), own(1.2, 25, 20, 60)]
    found = list(before(10_000_000, [a, b, []]))
    assert [one["at_us"] for one in found] == [7_000_000, 8_000_000, 9_000_000]
    assert [one["waiting"] for one in found] == [1, 12, 23]
    assert [one["oldest_wait_us"] for one in found] == [50, 40, 60]
    arrived = [one["rates"]["arrived"] for one in found]  # type: ignore[index]
    # Of a host's first sample the rate is not known; a counts 11 in 1.1 s, then 12 in 1.2 s, b 20 in 1 s.
    assert arrived == [0.0, pytest.approx(10.0), pytest.approx(30.0)]


def test_a_sample_that_is_long_over_says_nothing():
    found = list(before(600_000_000, [[own(500.0, 1), own(100.5, 5, 4), own(50.0, 9, 6)]]))
    assert [600 - one["at_us"] // 1_000_000 for one in found] == [100, 99, 50, 49]  # type: ignore[operator]


def test_a_master_that_counts_from_0_has_no_negative_rate():
    (_, last) = before(10_000_000, [[own(2.0, 900), own(1.0, 3)]])
    assert last["rates"]["arrived"] == 0.0  # type: ignore[index]


def test_a_history_is_read_before_it_is_believed():
    names = ("arrived", "answered", "refused", "broken", "gone", "waiting", "oldest_wait_us", "busy", "seats")
    one = {"at_us": 4, **dict.fromkeys((*names, "longest_us"), 1)}
    (found,) = own_samples({"now_us": 9, "samples": [one]})
    assert found.age_us == 5 and found.figures["seats"] == 1
    for wrong in [7, {}, {"now_us": 9, "samples": [{}]}, {"now_us": 9, "samples": [{**one, "busy": -1}]}]:
        with pytest.raises(Unexpected):
            own_samples(wrong)


# ---- AllHosts and names


def test_hosts_are_written_with_commas_between():
    given = hosts_watch.places("a:1, 127.0.0.1:2,[::1]:3,unix:/x,a:1,")
    assert [one.text for one in given] == ["a:1", "127.0.0.1:2", "[::1]:3", "unix:/x"]
    for text in [",", "", ",".join(f"a:{port}" for port in range(1, 300)), "a"]:
        with pytest.raises(UsageError):
            hosts_watch.places(text)


INET, INET6 = hosts_watch.socket.AF_INET, hosts_watch.socket.AF_INET6


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([(INET, "10.0.0.10"), (INET, "10.0.0.9"), (INET, "10.0.0.9")], ["10.0.0.9:7", "10.0.0.10:7"]),
        ([(INET6, "::1"), (INET, "127.0.0.1")], ["127.0.0.1:7"]),
        ([(INET6, "fd00::a"), (INET6, "fd00::9")], ["[fd00::9]:7", "[fd00::a]:7"]),
        (hosts_watch.socket.gaierror(hosts_watch.socket.EAI_NONAME, "no"), []),
    ],
)
def test_the_addresses_of_a_name(answer, expected, monkeypatch):
    def looked_up(*_: object, **__: object) -> list[Any]:
        if isinstance(answer, Exception):
            raise answer
        return [(family, 1, 6, "", (address, 7)) for family, address in answer]

    monkeypatch.setattr(hosts_watch.socket, "getaddrinfo", looked_up)
    assert [one.text for one in hosts_watch.addresses(place("pods:7"))] == expected


def test_a_name_server_that_is_away_is_no_answer(monkeypatch):
    def away(*_: object, **__: object) -> None:
        raise hosts_watch.socket.gaierror(hosts_watch.socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(hosts_watch.socket, "getaddrinfo", away)
    with pytest.raises(Failed, match="Temporary failure"):
        hosts_watch.addresses(place("pods:7"))


@pytest.mark.parametrize(
    ("field", "is_allowed"),
    [
        *[(field, True) for field in ("127.0.0.1", "127.0.0.1:9200", "[::1]:9200", "localhost", "LocalHost.:9200")],
        *[(field, True) for field in ("10.1.2.3", "board.svc:1", "board.x.svc.cluster.local", "me.example:9200")],
        *[(field, False) for field in ("evil.example", "evil.example:9200", "127.0.0.1.evil.example", "evilsvc", "")],
        *[(field, False) for field in ("a@127.0.0.1", "127.1", "2130706433", "x.svc.evil.example", "localhost:x")],
        *[(field, False) for field in ("evil.example/127.0.0.1", "[evil.example]", "::1", "localhost.evil.example")],
    ],
)
def test_only_a_browser_that_asks_for_us_gets_the_page(field, is_allowed):
    assert is_ours(field, "me.example") == is_allowed
