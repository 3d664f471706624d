"""`stanchion plan` with an engine that the test plays: what it asks for, what it shows, how it ends."""

import json
import re
from pathlib import Path

import pytest

from stanchion import _stanchion, plan
from stanchion.cli import main
from stanchion.plan import asked, goals, page, quantities, scenarios, score, words
from stanchion.plan.scenarios import Present
from support.planned import BEGAN_US, HOUR_US, SETTINGS, Engine, four, measured, result

LINE = json.dumps(
    {
        "time": "2026-11-29T10:00:30.500+00:00",
        "duration_us": 300_000,
        "wait_us": 100_000,
        "service_us": 150_000,
        "outcome": "answered",
        "worker": 3,
        "lane": "default",
    }
)
MODEL = ("--rate", "80", "--service", "p50=20ms,p99=900ms", "--cpu", "30%")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(_stanchion, "plan", made)
    return made


@pytest.fixture
def recording(tmp_path: Path) -> str:
    (tmp_path / "rec").mkdir()
    return "rec"


@pytest.fixture
def log(tmp_path: Path) -> str:
    (tmp_path / "access.log").write_text(f"{LINE}\n" * 3 + "hello\n")
    return "access.log"


@pytest.fixture
def told(engine, capsys):
    """The command's output; standard error; and the exit code."""

    def run(*arguments: str) -> tuple[str, str, int]:
        code = main(["plan", *arguments])
        return (*capsys.readouterr(), code)

    return run


def rows(out: str) -> dict[str, str]:
    """The row of each setting."""
    lines = out.split("workers x threads")[1].splitlines()[1:]
    found = (re.match(r"([*?]{0,2}) *(\S.*?)  +\S", line) for line in lines)
    return {one[2]: one.string for one in found if one}


def plain(out: str) -> str:
    return " ".join(out.split())


# ---- words


@pytest.mark.parametrize("arguments", [[], ["-h"], ["x", "--help"]])
def test_help_is_short(arguments, told):
    out, _, code = told(*arguments)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 79
    assert len(out.splitlines()) <= 42


def test_it_first_says_how_well_it_reproduces_and_then_varies(engine, told, recording):
    out, err, code = told(recording)
    assert (err, code) == ("", 0)
    said = plain(out)
    assert said.startswith("rec: 360,000 requests") and "CPU 20 %, elsewhere 40 %." in said
    assert (
        "4x2 now: p99 wait 200 ms measured, 200 ms here, mean wait 20.0 ms measured, 20.0 ms here, refused 0 %" in said
    )
    table = rows(out)
    assert next(iter(table)) == "4x2 now"
    assert set(table) == {"4x2 now", "2x2", "5x2", "6x2", "7x2", "8x2", "4x1", "4x4", "4x8"}
    assert [label for label, row in table.items() if row.startswith("*")] == ["4x4"]
    assert "* the cheapest with p99<50ms, refused<0.1%: 4x4 " in out
    assert table["8x2"].startswith("? ") and table["4x1"].startswith("   ")
    assert "? more requests at seats at once than were ever seen (8).\n" in out
    assert "Not known here:\n- The database beyond 8 busy seats.\n" in out
    measuring, simulating = engine.asked
    assert measuring["scenarios"] == [{"name": "now"}, {"name": "as recorded", "as_recorded": True}]
    assert measuring["source"] == simulating["source"] == {"recording": recording, "cpu_share": None}
    assert simulating["scenarios"][0] == {"name": "4x2"} and simulating["seeds"] == plan.SEEDS


def test_no_line_is_wider_than_a_terminal(engine, told, recording):
    engine.measured = measured(8.64e10, lost=12)
    engine.unknown = ["A sentence about something that is not known here, and that is longer than a line. " * 3]
    engine.changed["4x2"] = {
        "wait": four(8.64e10),
        "wait_band": {"p99_us": [1_234_567.0, 8.64e10]},
        "refused": 359_999.0,
        "utilization": {"seats": 1.0, "cores": None, "gil": None},
    }
    lanes = ("--lane", "default seats_max=6")
    out, _, _ = told(
        recording, "--workers", "4,4..2048", "--max-waiting", "100,999999", "--queue-order", "adaptive", *lanes
    )
    assert max(map(len, out.splitlines())) <= 79
    assert "4..2048x2 waiting 999999 adaptive lanes changed\n" in out


def test_a_log_says_what_it_does_not_know(engine, told, log):
    out, err, code = told(log)
    assert (err, code) == ("", 0)
    assert out.startswith("access.log (JSON lines of stanchion): 360,000 requests")
    assert "now" not in rows(out)
    assert "reproduces it: give --now WORKERSxTHREADS; the log names 4 workers." in plain(out)
    assert "Left out of the log:\n- 1 lines in another format\n" in out
    assert engine.asked[0]["scenarios"] == []
    assert engine.asked[0]["source"]["settings"] == {}
    arrivals = engine.asked[0]["source"]["arrivals"]
    assert len(arrivals) == 3 and arrivals[0][1:] == [150_000, None, 0, 0, 100_000, 0]
    assert engine.asked[1]["source"] == engine.asked[0]["source"]


def test_a_log_with_the_present_setting_is_compared(engine, told, log):
    out, _, code = told(log, "--now", "4x2", "--cores", "2", "--cpu", "30%")
    assert code == 0 and "4x2 now: p99 wait 200 ms measured" in out
    source = engine.asked[0]["source"]
    assert source["settings"] == {"workers": 4, "threads": 2, "cores": 2.0}
    assert source["cpu_share"] == 0.3
    assert next(iter(rows(out))) == "4x2 now", "the present cores are no change"


def test_more_traffic_comes_in_every_row_but_not_in_what_is_reproduced(engine, told, recording):
    out, _, code = told(recording, "--traffic", "2", "--check", "p99<1s")
    assert code == 0 and "With 2 times as many requests:\n" in out
    measuring, simulating = engine.asked
    assert not any("rate_factor" in one for one in measuring["scenarios"])
    assert all(one["rate_factor"] == 2 for one in simulating["scenarios"])
    # Twice as many seats are busy, and so more settings are tried.
    assert {"10x2", "12x2"} <= rows(out).keys()


def test_waits_that_were_not_measured_are_not_compared(engine, told, log):
    engine.measured = measured(wait=None)
    out, err, _ = told(log, "--now", "4x2")
    assert err == ""
    assert "4x2 now, as the plan has it: p99 wait 200 ms, refused 0 %. No waits were measured" in plain(out)


def test_a_model(engine, told):
    out, err, code = told(*MODEL)
    assert (err, code) == ("", 0)
    assert out.startswith("a model, 80 requests a second.\n")
    probing, simulating = engine.asked
    assert probing["source"]["model"] == {
        "rate_per_s": 80.0,
        "service": [[0.5, 20_000], [0.99, 900_000]],
        "cpu_share": 0.3,
        "seconds": 1_250.0,
        "settings": {},
    }
    # 80 a second of 60 ms each keep 4.8 seats busy, and need some √4.8 more.
    assert [one["name"] for one in simulating["scenarios"]] == ["7x1", "10x1", "12x1", "2x4", "3x4"]
    assert "present setting" not in out


def test_a_model_with_a_present_setting(engine, told):
    out, _, code = told(*MODEL, "--now", "4x2", "--check", "p99<1s")
    assert code == 0 and next(iter(rows(out))) == "4x2 now"
    assert engine.asked[0]["source"]["model"]["settings"] == {"workers": 4, "threads": 2}


@pytest.mark.parametrize(
    ("changed", "of_recorded", "doubt"),
    [
        ({}, {}, ""),
        ({"wait": four(205_000)}, {}, ""),
        (
            {"wait": four(300_000)},
            {},
            "p99 wait 200 ms, here 300 ms), so do not rely on it: the line with the recorded",
        ),
        ({"wait": four(300_000)}, {"wait": four(300_000)}, "is not reproduced either, so something else held"),
        ({"refused": 36_000.0}, {}, "(refused 0 %, here 10 %)"),
    ],
)
def test_a_plan_that_does_not_reproduce_warns(changed, of_recorded, doubt, engine, told, recording):
    engine.changed["now"], engine.changed["as recorded"] = changed, of_recorded
    _, err, code = told(recording)
    assert code == 0
    assert (err == "") if not doubt else (err.startswith("stanchion: warning: the plan does not") and doubt in err)


# ---- ends


@pytest.mark.parametrize(
    ("goal", "code", "err"),
    [
        ("p99<201ms", 0, ""),
        ("p99<200ms", 1, "stanchion: plan: 4x2 misses p99<200ms: p99 is 200 ms\n"),
        ("mean<20.1ms,p50<10.1ms,p90<100.1ms,refused<0.001%", 0, ""),
        (
            "mean<20ms,p50<10ms",
            1,
            "4x2 misses mean<20ms: mean is 20.0 ms\nstanchion: plan: 4x2 misses p50<10ms: p50 is",
        ),
        ("refused<0%", 1, "stanchion: plan: 4x2 misses refused<0%: refused is 0 %\n"),
    ],
)
def test_a_check_judges_the_present_setting(goal, code, err, told, recording):
    out, said, ended = told(recording, "--check", goal)
    assert ended == code
    assert (said == "") if code == 0 else (err in said)
    assert "workers x threads" in out


def test_requests_that_wait_too_long_or_are_shed_are_refused_too(engine, told, recording):
    engine.changed["4x2"] = {"refused": 3_600.0, "timed_out": 3_600.0, "shed": 3_600.0}
    out, err, code = told(recording, "--check", "refused<3%")
    assert code == 1 and err.endswith("misses refused<3%: refused is 3.0 %\n") and " 3.0 % " in rows(out)["4x2 now"]


def test_a_check_without_waits_is_no_pass(engine, told, recording):
    engine.changed["4x2"] = {"wait": None}
    _, err, code = told(recording, "--check", "p99<1h")
    assert code == 1 and "p99 is unknown" in err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["gone"], "gone cannot be read: No such file or directory"),
        (["torn"], "the recording torn has no file"),
        (["rec", "--now", "4x2"], "a recording says these itself: --now and --log-format are for logs"),
        (["rec", "--lane", "api seats=1"], "there is no lane 'api' among the arrivals, but default"),
        (["rec", "--workers", "4096", "--threads", "2"], "workers times threads is at most 4096, got 4096 times 2"),
        (
            ["rec", "--workers", ",".join(map(str, range(1, 10))), "--threads", "1,2,3,4,5,6,7,8"],
            "these are 71 settings",
        ),
        (["rec", "--page", "gone/page.html"], "the page gone/page.html cannot be written: No such file or directory"),
        (["log", "--check", "p99<1s"], "--check judges the present setting, which is not known: give --now "),
        (["log", "--score"], "--score replays the present setting, which is not known: give --now "),
        (["log", "--from", "2026-11-30T00:00"], "log has no request of the app with times in it: 1 lines in another"),
        (["bad"], "bad cannot be planned from: its lines have no format"),
        ([], "name a recording"),
        (["rec", "--rate", "80"], "name a recording or an access log, or give a model with --rate and --service; see"),
        (["--rate", "80"], "a model has --rate and --service; see `stanchion plan --help`"),
        (["--service", "p50=1s"], "name a recording"),
        (
            [*MODEL, "--score"],
            "--log-format, --from, --until and --score are for a recording or a log, not for a model",
        ),
        (["rec", "--score", "--check", "p99<1s"], "--score shows no plan, so it takes neither --page nor --check"),
        (["rec", "--score", "--json"], "--score is a table, so not with --json"),
        (["rec", "--score", "--each", "10ms"], "--each is at least a second"),
        (["rec", "--cpu", "130%"], "argument --cpu: expected a share between 0% and 100%, got '130%'"),
        (["rec", "--traffic", "0"], "argument --traffic: expected how many times as many requests, more than 0"),
        (["rec", "--cores", "nan"], "argument --cores: expected a number of cores, more than 0"),
        (["rec", "--now", "4"], "a recording says these itself"),
        (["rec", "--now", "4x"], "argument --now: expected workers and threads such as 4x2, got '4x'"),
        (["rec", "--from", "noon"], "argument --from: expected a moment such as 2026-11-29T14:00, got 'noon'"),
        (["rec", "--log-format", "x"], "argument --log-format: a format has atoms"),
        (["rec", "--what"], "unrecognized arguments: --what; see"),
    ],
)
def test_a_mistake_is_named(arguments, error, told, tmp_path):
    (tmp_path / "rec").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "log").write_text(f"{LINE}\n{LINE}\nhello\n")
    (tmp_path / "bad").write_bytes(bytes(range(256)) * 10)
    out, err, code = told(*(arguments or ["--json"]))
    assert (out, code) == ("", 2)
    assert err.startswith(f"stanchion: plan: {error}")


def test_ctrl_c_ends_it(engine, told, recording, monkeypatch):
    def interrupted(request: str, progress: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(_stanchion, "plan", interrupted)
    assert told(recording) == ("", "", 130)


def test_no_request_within_the_times(engine, told, recording):
    engine.measured = measured(requests=0, served=0, wait=None, service=None)
    _, err, code = told(recording, "--from", "2026-11-29T10:00", "--until", "2026-11-29T10:01")
    assert (err, code) == ("stanchion: plan: there are no requests within these times\n", 2)
    assert engine.asked[0]["until_us"] - engine.asked[0]["from_us"] == 60_000_000


def test_no_request_that_had_a_seat(engine, told, recording):
    engine.measured = measured(requests=3, served=0, wait=None, service=None)
    _, err, code = told(recording)
    assert (err.partition(",")[0], code) == ("stanchion: plan: no request within these times had a seat", 2)


def test_json_has_all_figures_and_the_verdict(told, recording):
    out, err, code = told(recording, "--json", "--check", "p99<50ms")
    data = json.loads(out)
    assert (data["now"], data["cheapest"], code) == ("4x2", "4x4", 1)
    assert data["results"][0]["name"] == "4x2"
    assert data["goals"] == [{"what": "p99", "below": 50_000.0}]
    assert data["measured"]["wait"] == data["replayed"]["wait"] == four(200_000.0)
    assert err == "stanchion: plan: 4x2 misses p99<50ms: p99 is 200 ms\n"


# ---- settings that are tried

NOW = Present({**SETTINGS}, 6.0)
LOOPS = Present({**SETTINGS, "event_loop": True}, 60.0)
ELASTIC = Present({**SETTINGS, "workers": [2, 8]}, 6.0)


def options(*words: str) -> asked.Asked:
    return asked.parse(["rec", *words])


@pytest.mark.parametrize(
    ("present", "arguments", "names"),
    [
        (NOW, (), ["4x2", "2x2", "5x2", "6x2", "7x2", "8x2", "4x1", "4x4", "4x8"]),
        (LOOPS, (), ["4", "2", "6", "8"]),
        (Present({**LOOPS.knobs, "workers": 40}, 60.0), (), ["40", "20", "60"]),
        (ELASTIC, (), ["2..8x2", "4x2", "5x2", "6x2", "7x2", "8x2", "12x2", "16x2", "8x1", "8x4", "8x8"]),
        (Present({}, 0.0), (), ["1x1", "1x4"]),
        (Present({}, 1e9), (), ["4096x1", "1024x4"]),
        (NOW, ("--workers", "2,4,4..32"), ["4x2", "2x2", "4..32x2"]),
        (NOW, ("--threads", "2,4"), ["4x2", "4x4"]),
        (NOW, ("--workers", "2,8", "--threads", "1,2"), ["4x2", "2x1", "2x2", "8x1", "8x2"]),
        (NOW, ("--max-waiting", "100,2048"), ["4x2", "4x2 waiting 100"]),
        (NOW, ("--queue-order", "fifo,adaptive"), ["4x2", "4x2 adaptive"]),
        (NOW, ("--lane", "default seats_max=3"), ["4x2", "4x2 lanes changed"]),
        (NOW, ("--workers", "4", "--cores", "4"), ["4x2", "4x2 cores 4"]),
        (LOOPS, ("--workers", "2,4"), ["4", "2"]),
    ],
)
def test_settings_around_the_present_one_or_those_that_were_asked_for(present, arguments, names):
    tried = scenarios.tried(options(*arguments), present)
    assert [one["name"] for one in tried] == names


def test_lanes_keep_what_is_not_changed():
    _, changed = scenarios.tried(options("--lane", "default seats_max=3 waiting=9"), NOW)
    expected = {"name": "default", "priority": 10, "seats": 0, "seats_max": 3, "waiting": 9}
    assert changed["lanes"] == [expected] and changed["workers"] == 4


def test_the_curve_of_the_page_has_more_numbers_of_workers():
    known = scenarios.tried(options(), NOW)
    more = scenarios.curve(options(), NOW, known)
    workers = {one["workers"] for one in (*known, *more) if one.get("threads") == 2} | {4}
    assert workers == set(range(1, 9)) and not {one["name"] for one in more} & {one["name"] for one in known}
    assert scenarios.curve(options("--workers", "4"), NOW, known) == []


def test_the_cheapest_has_few_workers_and_then_few_threads():
    made = [
        result({**SETTINGS, "name": name, "workers": workers, "threads": threads}, **changed)
        for name, workers, threads, changed in (
            ("4x2", 4, 2, {}),
            ("8x2", 8, 2, {}),
            ("4x8", 4, 8, {}),
            ("4x4", 4, 4, {}),
            ("2..8x8", [2, 8], 8, {"worker_seconds": 3.7 * 3_600}),
        )
    ]
    assert plan._cheapest(made, options("--check", "p99<50ms"), 3_600.0) == "2..8x8"
    assert plan._cheapest(made[:4], options("--check", "p99<50ms"), 3_600.0) == "4x4"
    assert plan._cheapest(made[:2], options("--check", "p99<50ms"), 3_600.0) == "8x2"
    assert plan._cheapest(made[:1], options("--check", "p99<50ms"), 3_600.0) is None
    assert plan._cheapest(made, options("--check", "p99<1h,refused<100%"), 3_600.0) == "2..8x8"


# ---- quantities


@pytest.mark.parametrize(
    ("text", "us"),
    [("20ms", 20_000), ("1.5s", 1_500_000), ("3 us", 3), ("3µs", 3), ("10min", 600_000_000), ("24h", 86_400_000_000)],
)
def test_times(text, us):
    assert quantities.time_us(text) == us


@pytest.mark.parametrize("text", ["", "20", "ms", "-1s", "1e3s", "25h", "1m", "٣s", "1s 2s", "999999999999s"])
def test_what_is_no_time(text):
    with pytest.raises(ValueError, match=r"^expected a time"):
        quantities.time_us(text)


@pytest.mark.parametrize(
    ("low_us", "high_us", "shown"),
    [
        (0, 0, "0-0 µs"),
        (5, 998, "5.0-998 µs"),
        (190_000, 228_000, "190-228 ms"),
        (1_000, 2_345_000, "0.00-2.3 s"),
        (0, 8.64e10, "0-24 h"),
    ],
)
def test_bands(low_us, high_us, shown):
    assert quantities.between(low_us, high_us) == shown


@pytest.mark.parametrize(
    ("part", "shown"), [(None, "-"), (0, "0 %"), (1e-9, "<0.1 %"), (0.004, "0.4 %"), (0.0996, "10 %"), (1, "100 %")]
)
def test_shares(part, shown):
    assert quantities.percent(part) == shown


@pytest.mark.parametrize("text", ["p99<50ms", "mean<1.5s,p50<2min,p90<1h", "refused<0.1%", "p99<20us,refused<1%"])
def test_goals_are_shown_as_they_are_written(text):
    assert ",".join(map(str, goals.parse(text))) == text


@pytest.mark.parametrize(
    "text",
    ["", "p99", "p99<", "p99>5ms", "p95<5ms", "p99<5%", "refused<5ms", "p99<1s,p99<2s", "p99<1s,", "p99<1s" + ",x" * 9],
)
def test_what_is_no_goal(text):
    with pytest.raises(ValueError, match=r"^(expected|each of)"):
        goals.parse(text)


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--service", "p50=20ms,p50=30ms"),
        ("--service", "p99=20ms,p50=30ms"),
        ("--service", "p50=30ms,p99=20ms"),
        ("--service", "p0=1ms"),
        ("--service", "p100=1ms"),
        ("--service", "mean=1ms"),
        ("--service", ",".join(f"p{n}=1s" for n in range(1, 30))),
        ("--rate", "0"),
        ("--rate", "inf"),
        ("--workers", "0"),
        ("--workers", "8..4"),
        ("--workers", "4.."),
        ("--workers", "٣"),
        ("--workers", ",".join(map(str, range(1, 20)))),
        ("--threads", "2..4"),
        ("--max-waiting", "0"),
        ("--queue-order", "lifo"),
        ("--lane", "api"),
        ("--lane", ""),
        ("--lane", "api path=/x"),
        ("--lane", "api seats_max=0"),
    ],
)
def test_what_an_argument_does_not_take(flag, text, told):
    _, err, code = told("rec", flag, text)
    assert code == 2 and err.startswith(f"stanchion: plan: argument {flag}: ")


# ---- score


def test_a_score_predicts_each_hour_from_the_one_before(engine, told, recording):
    engine.measured = measured(until_us=BEGAN_US + 3 * HOUR_US - 1)
    out, err, code = told(recording, "--score")
    assert (err, code) == ("", 0)
    whole, *windows = engine.asked
    assert whole["scenarios"] == []
    assert [(one["from_us"] - BEGAN_US) // HOUR_US for one in windows] == [0, 1, 2]
    assert all(one["until_us"] - one["from_us"] == HOUR_US for one in windows)
    [first, second] = [line for line in out.splitlines() if line.startswith("20")]
    assert first.split()[2:] == second.split()[2:] == ["360,000", "200", "ms", "200", "ms", "+0", "%", "200", "ms"]
    assert "Off by 0 % in the median, of 2.\n" in out


def window(number: int, measured_us: float, replayed_us: float, requests: int = 5_000) -> score.Window:
    told = measured(measured_us, requests=requests)
    return score.Window(BEGAN_US + number * HOUR_US, told, result({**SETTINGS, "name": "now"}, wait=four(replayed_us)))


def test_the_error_is_a_share_of_what_was_measured():
    found = [
        window(0, 100e3, 110e3),
        window(1, 100e3, 90e3),
        window(2, 60e3, 60e3),
        window(4, 900, 900),
        window(5, 10, 10),
    ]
    pairs = score.pairs(found, HOUR_US)
    # The hour after a gap has no prediction; waits of less than a millisecond are no errors.
    assert [round(one.off, 3) if one.off is not None else None for one in pairs] == [0.1, 0.5, None]
    said = "\n".join(score.words(pairs))
    assert max(map(len, said.splitlines())) <= 79
    assert "+10 %" in said and "+50 %" in said and "Off by 30 % in the median, of 2." in said


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"wait": None}, "no waits were measured, so there is nothing to score"),
        (
            {"until_us": BEGAN_US + 10 * HOUR_US, "requests": 999},
            "--score wants two windows after each other with 1000",
        ),
        ({"until_us": BEGAN_US + 2_000 * HOUR_US}, "these are 2001 windows, more than 1000: give a longer --each"),
    ],
)
def test_what_cannot_be_scored(changed, error, engine, told, recording):
    engine.measured = measured(**changed)
    _, err, code = told(recording, "--score")
    assert code == 2 and err.startswith(f"stanchion: plan: {error}")


# ---- the page


def test_the_page_is_one_file_that_loads_nothing(told, recording, tmp_path):
    _, _, code = told(recording, "--page", str(tmp_path / "p.html"))
    text = (tmp_path / "p.html").read_text()
    assert code == 0
    assert "default-src 'none'" in text and not re.search(r"(?:src|href)\s*=|https?://(?!www\.w3\.org/2000/svg)", text)
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert data["now"] == "4x2" and data["cheapest"] == "4x4" and data["goal_us"] == 50_000
    assert data["series"] == [f"{workers}x2" for workers in range(1, 9)]
    assert data["unseen"] and data["unknown"] == ["The database beyond 8 busy seats."]


def test_texts_on_the_page_are_no_markup():
    foul = '</script><script>document.title="foul"</script><!--'
    text = page.made({"results": [], "unknown": [foul]})
    assert foul not in text and "\\u003c/script>\\u003cscript>" in text
    assert json.loads(text.partition('id="data">')[2].partition("</script>")[0])["unknown"] == [foul]


def test_the_curve_of_the_page_has_only_settings_that_differ_in_workers():
    made = [
        result({**SETTINGS, "name": "4x2", "workers": 4}),
        result({**SETTINGS, "name": "2x2", "workers": 2}),
        result({**SETTINGS, "name": "2x4", "workers": 2, "threads": 4}),
        result({**SETTINGS, "name": "2..8x2", "workers": [2, 8]}),
        result({**SETTINGS, "name": "3x2", "workers": 3}, wait=None),
    ]
    assert page.series(made) == ["2x2", "4x2"]


# ---- the bar


class Terminal:
    def __init__(self, is_tty: bool) -> None:
        self.written = ""
        self._is_tty = is_tty

    def isatty(self) -> bool:
        return self._is_tty

    def write(self, text: str) -> None:
        self.written += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(
    ("is_tty", "after_s", "is_shown"), [(True, 0.0, True), (True, 60.0, False), (False, 0.0, False)]
)
def test_a_bar_is_for_terminals_and_long_work(is_tty, after_s, is_shown, monkeypatch):
    monkeypatch.setattr("stanchion.plan.engine.BAR_AFTER_S", after_s)
    out = Terminal(is_tty)
    bar = plan.Bar(out)
    bar.shown("simulating", 0.5)
    bar.end()
    assert out.written == ("\r\033[Ksimulating   " + "#" * 20 + "." * 20 + "  50 %\r\033[K" if is_shown else "")


def test_marks_are_explained_only_if_there_are_some():
    assert list(words.legend(goals.DEFAULT, None, False, None)) == ["None of these meets p99<50ms, refused<0.1%."]
