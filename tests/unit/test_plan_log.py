"""Access logs as a plan reads them: which format lines have, and what each line says of its request."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from stanchion.plan import log_format, log_lines
from stanchion.plan.log_format import LineFormat, Unreadable
from stanchion.plan.log_lines import Log

ALL_US = (0, 2**63)
# 2026-11-29T10:00:00Z.
TEN_US = 1_795_946_400_000_000
SECOND_US = 1_000_000
HALF_PAST = "[29/Nov/2026:10:00:30 +0000]"
COMBINED = f'10.0.0.1 - - {HALF_PAST} "GET /a b HTTP/1.1" 200 12 "-" "curl \\"8\\" [x]"'


def ours(**changes: object) -> str:
    plain = {
        "time": "2026-11-29T10:00:30.500+00:00",
        "remote_addr": "10.0.0.1",
        "status": 200,
        "duration_us": 300_000,
        "wait_us": 100_000,
        "service_us": 150_000,
        "outcome": "answered",
        "lane": "default",
        "worker": 3,
        "cpu_us": 40_000,
        "arrived_us": TEN_US + 30 * SECOND_US,
    }
    return json.dumps({key: value for key, value in {**plain, **changes}.items() if value != "absent"})


@pytest.fixture
def read(tmp_path: Path):
    """The log of these lines."""

    def read(*lines: str | bytes, format: LineFormat | None = None, within_us: tuple[int, int] = ALL_US) -> Log:
        data = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
        (tmp_path / "log").write_bytes(data)
        with (tmp_path / "log").open("rb") as file:
            return log_lines.read(file, format, within_us, lambda share: None)

    return read


def rows(log: Log) -> list[list[int | None]]:
    made: list[list[int | None]] = json.loads(log.json())
    return made


def row(log: Log) -> list[int | None]:
    [only] = rows(log)
    return only


CLIENT = log_lines._client("10.0.0.1")


@pytest.mark.parametrize(
    ("line", "title", "expected"),
    [
        # Arrival, service, CPU, lane, client, wait, outcome.
        (ours(), "JSON lines of stanchion", [TEN_US + 30 * SECOND_US, 150_000, 40_000, 0, CLIENT, 100_000, 0]),
        (
            ours(arrived_us="absent", cpu_us=None),
            "JSON lines of stanchion",
            [TEN_US + 30_200_000, 150_000, None, 0, CLIENT, 100_000, 0],
        ),
        (
            json.dumps(
                {"msec": "1795946430.250", "request_time": "0.250", "upstream_response_time": "0.1", "remote_addr": ""}
            ),
            "JSON lines with nginx's variables",
            [TEN_US + 30 * SECOND_US, 100_000, None, 0, 0, None, 0],
        ),
        (
            json.dumps({"time_iso8601": "2026-11-29T10:00:30.500Z", "request_time": 0.5}),
            "JSON lines with nginx's variables",
            [TEN_US + 30 * SECOND_US, 500_000, None, 0, 0, None, 0],
        ),
    ],
)
def test_lines_with_moments(line: str, title: str, expected: list[int | None], read) -> None:
    log = read(line)
    assert log.format.title == title
    assert row(log) == expected
    assert not log.has_whole_seconds and not log.skipped


@pytest.mark.parametrize(
    ("rest", "title", "took_us", "service_us", "is_of_app"),
    [
        (" 0.250000", "gunicorn's, with %(L)s last", 250_000, 250_000, True),
        (" 250000", "gunicorn's, with %(D)s last", 250_000, 250_000, True),
        (" 0.250", "nginx's, with $request_time last", 250_000, 250_000, False),
        (" 0.250 0.200", "nginx's, with $request_time $upstream_response_time last", 250_000, 200_000, False),
        (" 0.250 0.010, 0.200", "nginx's, with $request_time $upstream_response_time last", 250_000, 200_000, False),
        (" 0.250 0.010 : 0.200", "nginx's, with $request_time $upstream_response_time last", 250_000, 200_000, False),
    ],
)
def test_lines_with_whole_seconds(rest: str, title: str, took_us: int, service_us: int, is_of_app: bool, read) -> None:
    log = read(COMBINED + rest)
    assert (log.format.title, log.format.is_of_app) == (title, is_of_app)
    at, service, cpu, lane, client, wait, outcome = row(log)
    # Its end is somewhere in that second.
    assert 0 <= at - (TEN_US + 30 * SECOND_US - took_us) < SECOND_US
    assert (service, cpu, lane, client, wait, outcome) == (service_us, None, 0, CLIENT, None, 0)
    assert log.has_whole_seconds


def test_requests_of_one_second_come_in_the_order_of_their_lines_at_moments_that_are_drawn(read) -> None:
    later = COMBINED.replace(":30 +", ":31 +")
    log = read(*[f"{COMBINED} 0.000000"] * 50, *[f"{later} 0.000000"] * 50)
    moments = [at - TEN_US for at, *_ in rows(log)]
    assert moments == sorted(moments) and len(set(moments)) == 100
    assert 30 * SECOND_US <= moments[0] < moments[49] < 31 * SECOND_US <= moments[50] < moments[99] < 32 * SECOND_US
    assert moments[49] - moments[0] > SECOND_US // 2 < moments[99] - moments[50], "each second has its own"
    # In a burst they come closer together than evenly, and that is what makes others wait.
    gaps = sorted(b - a for a, b in pairwise(moments[:50]))
    assert gaps[0] < SECOND_US // 500 and gaps[-1] > SECOND_US // 25


@pytest.mark.parametrize(
    ("format", "line", "expected"),
    [
        (
            '%(t)s "%(r)s" %(s)s %(M)s %({wait_us}x)s %({service_us}x)s %({cpu_us}x)s %({lane}x)s',
            f'{HALF_PAST} "GET / HTTP/1.1" 200 250 1000 200000 7 api',
            (200_000, 7, 1, 0, 1_000, 0),
        ),
        (
            "%(h)s %({X-Forwarded-For}i)s %({arrived_us}x)s %(D)s",
            f"10.0.0.1 10.9.9.9 {TEN_US} 4000",
            (4_000, None, 0, CLIENT, None, 0),
        ),
        (
            "$remote_addr [$time_local] rt=$request_time urt=${upstream_response_time}",
            f"10.0.0.1 {HALF_PAST} rt=0.500 urt=0.400",
            (400_000, None, 0, CLIENT, None, 0),
        ),
    ],
)
def test_a_format_of_its_own(format: str, line: str, expected: tuple[int | None, ...], read) -> None:
    assert tuple(row(read(line, format=log_format.given(format))))[1:] == expected


@pytest.mark.parametrize(
    ("outcome", "service_us", "expected"),
    [
        ("answered", 5, log_lines.SERVED),
        ("broken_off", 5, log_lines.SERVED),
        ("refused_line_full", None, log_lines.LINE_FULL),
        ("refused_waited_too_long", None, log_lines.TIMED_OUT),
        ("abandoned_waiting", None, log_lines.LEFT_WAITING),
        ("abandoned_running", 5, log_lines.LEFT_RUNNING),
        ("refused_worker_timed_out", 5, log_lines.KILLED),
        ("refused_shed", None, log_lines.SHED),
        ("refused_too_many_of_client", None, log_lines.TOO_MANY_OF_CLIENT),
        ("refused_sessions_full", None, log_lines.REFUSED),
        # The server has answered these itself.
        ("static", None, None),
        ("refused_bad_request", None, None),
        (7, None, None),
    ],
)
def test_outcomes(outcome: object, service_us: int | None, expected: int | None, read) -> None:
    log = read(ours(outcome=outcome, service_us=service_us))
    assert [one[-1] for one in rows(log)] == ([] if expected is None else [expected])
    assert log.skipped == ({"not for the app": 1} if expected is None else {})


def test_static_files_of_nginx_are_not_for_the_app(read) -> None:
    log = read(f"{COMBINED} 0.001 -", f"{COMBINED} 0.250 0.200")
    assert len(log) == 1 and log.skipped == {"not for the app": 1}


def test_lanes_and_workers_are_those_that_the_log_names(read) -> None:
    log = read(ours(lane="api"), ours(worker=None), ours(lane="slow", worker=7))
    assert log.lanes == ["default", "api", "slow"] and log.workers == 8
    assert [one[3] for one in rows(log)] == [1, 0, 2]
    assert log.has_waits


def test_only_requests_within_the_moments_count(read) -> None:
    lines = [ours(arrived_us=TEN_US + second * SECOND_US) for second in range(10)]
    log = read(*lines, within_us=(TEN_US + 2 * SECOND_US, TEN_US + 5 * SECOND_US))
    assert [(at - TEN_US) // SECOND_US for at, *_ in rows(log)] == [2, 3, 4]


HOSTILE = [
    (ours(service_us=-1), "with times that cannot be"),
    (ours(wait_us=1e300), "with times that cannot be"),
    (ours(wait_us=float("nan")), "with times that cannot be"),
    (ours(duration_us="9" * 400), "with times that cannot be"),
    (ours(cpu_us=[1]), "with times that cannot be"),
    (ours(cpu_us=True), "with times that cannot be"),
    (ours(arrived_us=2**60), "with times that cannot be"),
    (ours(arrived_us="absent", time="yesterday"), "with times that cannot be"),
    (ours(arrived_us="absent", time="0001-01-01T00:00:00"), "with times that cannot be"),
    (ours(arrived_us="absent", time="1969-01-01T00:00:00+00:00"), "with times that cannot be"),
    (ours(lane="\x1b]0;title\x07"), "with times that cannot be"),
    ("[" * 60_000, "in another format"),
    ('{"a":' * 10_000, "in another format"),
    ("[1, 2]", "in another format"),
    ("\x00\x01\x02", "in another format"),
    (b"\xff\xfe{", "in another format"),
    ("x" * (log_lines.LINE_BYTES_MAX + 1), "too long"),
    ("x" * (3 * log_lines.LINE_BYTES_MAX), "too long"),
]


@pytest.mark.parametrize(("line", "why"), HOSTILE)
def test_a_hostile_line_is_left_out_and_counted(line: str | bytes, why: str, read) -> None:
    log = read(ours(), ours(), line, ours())
    assert len(log) == 3 and log.skipped == {why: 1}


def test_hostile_values_that_only_matter_for_people_do_no_harm(read) -> None:
    log = read(ours(remote_addr="\ud800"), ours(remote_addr=7), ours(lane=None), ours(outcome=None))
    assert len(log) == 4 and not log.skipped


def test_a_line_of_the_greatest_length_counts_and_so_does_the_last_without_an_end(tmp_path: Path) -> None:
    longest = ours(path="/" * (log_lines.LINE_BYTES_MAX - len(ours(path="")) - 1))
    assert len(longest) == log_lines.LINE_BYTES_MAX - 1
    (tmp_path / "log").write_text(f"{longest}\n{ours()}")
    with (tmp_path / "log").open("rb") as file:
        log = log_lines.read(file, None, ALL_US, lambda share: None)
    assert len(log) == 2 and not log.skipped


def test_long_patterns_take_no_longer_than_their_lines(read) -> None:
    """A pattern that looked back would take a time that grows with a power of the length."""
    line = " ".join(['"' * 3, "[" * 100, '\\"' * 100] * 150)[: log_lines.LINE_BYTES_MAX - 1]
    log = read(*[f"{COMBINED} 0.250 0.200"] * 200, *[line] * 20)
    assert len(log) == 200 and log.skipped == {"in another format": 20}


def test_requests_beyond_the_bound_are_not_read(read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "REQUESTS_MAX", 5)
    log = read(*[ours()] * 5)
    assert len(log) == 5 and not log.is_cut
    log = read(*[ours()] * 6)
    assert len(log) == 5 and log.is_cut
    log = read(*[f"{COMBINED} 0.250000"] * 6)
    assert len(log) == 5 and log.is_cut


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([COMBINED], "its lines say when a request ended, and not how long it took.\n"),
        ([f"{COMBINED} {'7' * 5_000}"], "its lines have no format"),
        ([f"{COMBINED} 12"], "its lines end with whole numbers that may be microseconds, milliseconds or seconds"),
        (['INFO:     127.0.0.1:50244 - "GET / HTTP/1.1" 200 OK'] * 3, "uvicorn's access log has neither times of day"),
        ([f"{COMBINED} 12ms"], "its lines have no format that this program knows.\n"),
        (["hello", "world"], "its lines have no format that this program knows.\n"),
        (["{}", '{"time": "2026-11-29T10:00:30Z"}'], "its JSON lines lack the times. "),
        ([ours(), "x", "y"], "its lines have no format that this program knows.\n"),
        ([], "it is empty."),
    ],
)
def test_a_log_without_times_says_what_to_set(lines: list[str], error: str, read) -> None:
    with pytest.raises(Unreadable) as raised:
        read(*lines)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(
    ("format", "error"),
    [
        ("", "a format has atoms"),
        ("%h %D", "a format has atoms"),
        ("%(t)s %(T)s", "a format has a time of day"),
        ("$request_time $upstream_response_time", "a format has a time of day"),
        ("%(D)s%(t)s", "in a format something stands between %(D)s and %(t)s"),
        ("%(D)s" + "x" * 5_000, "a format has at most 4096 characters"),
    ],
)
def test_what_is_no_format(format: str, error: str) -> None:
    with pytest.raises(ValueError, match="^" + error.replace("(", r"\(").replace(")", r"\)")):
        log_format.given(format)


def test_a_pipe_has_no_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its progress is unknown."""
    read_fd, write_fd = os.pipe()
    os.write(write_fd, (ours() + "\n").encode())
    os.close(write_fd)
    monkeypatch.setattr(log_lines, "_STEP_LINES", 1)
    shares: list[float] = []
    with open(read_fd, "rb") as file:
        log = log_lines.read(file, None, ALL_US, shares.append)
    assert len(log) == 1 and shares == [0.0]
