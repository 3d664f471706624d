"""`stanchion plan`: how long requests would wait with other workers and threads, from a recording, a log or a model.

asked.py has the arguments, source.py makes arrivals of what they name (log_lines.py and log_format.py read access
logs), engine.py calls the simulator, which is Rust and has the line itself in it, scenarios.py chooses the settings to
try. words.py, page.py and score.py show what comes out.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stanchion import __version__
from stanchion.arguments import ask_for_help
from stanchion.effective import UsageError
from stanchion.output import as_json, complain, put, show
from stanchion.plan import asked, engine, goals, page, scenarios, score, source, words
from stanchion.plan.asked import Asked
from stanchion.plan.engine import Bar
from stanchion.plan.scenarios import Present
from stanchion.plan.source import Source

EXIT_OK = 0
EXIT_MISSED = 1
EXIT_INTERRUPTED = 130
"""As a shell says it of a process that SIGINT has ended."""

SEEDS = 9
"""Runs of each setting: the band is made of them."""

_PROBE = {"name": "probe", "workers": 1, "threads": 64}
"""With it a model shows how many seats it keeps busy."""

USAGE = """\
Usage: stanchion plan DIR | LOG | -         [FLAGS]
       stanchion plan --rate N --service QUANTILES [FLAGS]

Says how long requests would wait with other numbers of workers and threads,
by a simulation with the server's own line. Takes a recording (the DIR of
--record-arrivals), an access log with times (- reads it from standard input)
of stanchion, gunicorn or nginx, or a model.

  --rate 80              Of a model: requests a second
  --service p50=20ms,p99=900ms
                         Of a model: quantiles of the time at a seat
  --cpu 30%              The part of that on a core, where it was not measured
  --now 4x2              The present workers x threads, of a log or a model
  --cores N              Cores that the workers may use
  --log-format FORMAT    Atoms of gunicorn or variables of nginx, if the log
                         has a format of its own
  --traffic 2            Twice as many requests as there were
  --from, --until TIME   Only requests that came then: 2026-11-29T14:00

Tries some settings around the present one, or each of:
  --workers 2,4,4..32    --threads 1,2,4    --max-waiting 100,2048
  --queue-order fifo,adaptive               --lane 'NAME seats=2 seats_max=6'

  --check GOALS          Fail if the present setting misses one, such as
                         p99<50ms,p50<5ms,mean<9ms,refused<1%
  --page FILE            Write a page with curves, for a browser
  --json                 Print JSON
  --score [--each 1h]    Predict each hour from the one before, and compare

Exit codes: 0 planned; 1 the present setting misses a goal of --check; 2 wrong
usage, or arrivals that cannot be read."""


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if ask_for_help(arguments) or not arguments:
        show(USAGE)
        return EXIT_OK
    options = asked.parse(arguments)
    bar = Bar()
    try:
        arrivals = source.of(options, partial(bar.shown, "reading"))
        if options.score:
            return _score(options, arrivals, bar)
        plan = _plan(options, arrivals, bar)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        bar.end()
    return _shown(options, plan)


def _plan(options: Asked, arrivals: Source, bar: Bar) -> dict[str, Any]:
    """Everything that is shown, for programs and for people."""
    is_known = arrivals.knows_present
    if options.is_check and not is_known:
        raise UsageError(f"plan: --check judges the present setting, which is not known: {_now_missing(arrivals)}")
    probes: list[dict[str, Any]] = [{"name": "now"}, {"name": "as recorded", "as_recorded": True}] if is_known else []
    if options.rate is not None:
        probes = [{"name": "now"}, _PROBE] if is_known else [_PROBE]
    first = engine.simulate(arrivals, probes, 1, partial(bar.shown, "measuring"))
    measured, replays = first["measured"], first["results"]
    if measured is not None and not measured["requests"]:
        raise UsageError("plan: there are no requests within these times")
    if measured is not None and measured["service"] is None:
        raise UsageError("plan: no request within these times had a seat, so no service time is known to simulate with")
    present = _present(options, arrivals, first)
    rows = scenarios.tried(options, present)
    more = scenarios.curve(options, present, rows) if options.page else []
    answer = engine.simulate(arrivals, [*rows, *more], SEEDS, partial(bar.shown, "simulating"))
    results = answer["results"]
    span_s = (_span_s(measured) if measured is not None else arrivals.span_s or 1.0) / options.traffic
    now = rows[0]["name"] if is_known else None
    is_compared = is_known and measured is not None
    return {
        "version": __version__,
        "title": arrivals.title,
        "measured": measured,
        "replayed": replays[0] if is_compared else None,
        "doubts": words.doubts(measured, replays[0], replays[1]) if is_compared else [],
        "goals": [{"what": one.what, "below": one.below} for one in options.goals],
        "now": now,
        "cheapest": _cheapest(results[: len(rows)], options, span_s),
        "results": results[: len(rows)],
        "more_results": results[len(rows) :],
        "band": answer["band"],
        "unknown": [*answer["unknown"], *arrivals.notes, *_of_unknown_present(arrivals, measured)],
        "left_out": list(arrivals.left_out),
    }


def _present(options: Asked, arrivals: Source, first: Mapping[str, Any]) -> Present:
    """The present setting as far as it is known, and how many seats the arrivals keep busy."""
    measured, replays = first["measured"], first["results"]
    settings = replays[0]["knobs"] if arrivals.knows_present else arrivals.settings
    rate = options.rate or 0.0
    if measured is not None:
        rate = measured["requests"] / _span_s(measured)
    if replays and replays[-1]["served"]:
        spent = replays[-1]["spent_us"]
        mean_us = (spent["cpu"] + spent["elsewhere"]) / replays[-1]["served"]
    else:
        mean_us = measured["service"]["mean_us"] if measured is not None and measured["service"] else 0.0
    return Present(settings, options.traffic * rate * mean_us / 1e6)


def _span_s(measured: Mapping[str, Any]) -> float:
    return max(1.0, float(measured["until_us"] - measured["from_us"])) / 1e6


def _now_missing(arrivals: Source) -> str:
    hint = f"; the log names {arrivals.workers} workers" if arrivals.workers else ""
    return f"give --now WORKERSxTHREADS{hint}"


def _of_unknown_present(arrivals: Source, measured: Mapping[str, Any] | None) -> list[str]:
    if arrivals.knows_present or measured is None:
        return []
    return [f"The present setting, so nothing shows whether the plan reproduces it: {_now_missing(arrivals)}."]


def _cheapest(results: Sequence[Mapping[str, Any]], options: Asked, span_s: float) -> str | None:
    """A worker costs memory, a thread little; among equals the one that was named first."""

    def cost(result: Mapping[str, Any]) -> tuple[float, int]:
        workers = result["knobs"]["workers"]
        # Of a range the mean counts.
        mean = workers if isinstance(workers, int) else result["worker_seconds"] / span_s
        return mean, result["knobs"].get("threads") or 1

    good = [one for one in results if not goals.missed(one, options.goals)]
    return min(good, key=cost)["name"] if good else None


def _shown(options: Asked, plan: Mapping[str, Any]) -> int:
    results, measured = plan["results"], plan["measured"]
    seen = measured["busy"]["seats_max"] if measured is not None else None
    unseen = [one["name"] for one in (*results, *plan["more_results"]) if words.is_unseen(one, seen)]
    about = [*words.about(plan["title"], measured)]
    if plan["replayed"] is not None:
        about += words.wrapped(words.reproduced(scenarios.size(plan["replayed"]["knobs"]), measured, plan["replayed"]))
    if options.page is not None:
        _write(options.page, _page(options, plan, about, unseen))
    for one in plan["doubts"]:
        complain(f"stanchion: warning: {one}")
    if options.json:
        put(as_json(plan, indent=2))
    else:
        wanted = [*words.table(results, plan["now"], plan["cheapest"], seen)]
        has_unseen = any(one["name"] in unseen for one in results)
        said = words.legend(options.goals, plan["cheapest"], has_unseen, seen)
        if options.traffic != 1:
            about += [f"With {options.traffic:g} times as many requests:"]
        show("\n".join([*about, "", *wanted, *said, "", *words.unknown(plan["unknown"], plan["left_out"])]).rstrip())
    return _judged(options, plan) if options.is_check else EXIT_OK


def _judged(options: Asked, plan: Mapping[str, Any]) -> int:
    """The verdict of --check on the present setting, which is the first."""
    present = plan["results"][0]
    missed = goals.missed(present, options.goals)
    for goal in missed:
        figure = goals.figure(present, goal.what)
        shown = "unknown" if figure is None else goal.shown(figure)
        complain(f"stanchion: plan: {present['name']} misses {goal}: {goal.what} is {shown}")
    return EXIT_MISSED if missed else EXIT_OK


def _page(options: Asked, plan: Mapping[str, Any], about: Sequence[str], unseen: Sequence[str]) -> str:
    results = [*plan["results"], *plan["more_results"]]
    bound = next((one.below for one in options.goals if one.what == "p99"), None)
    return page.made(
        {
            **{key: plan[key] for key in ("measured", "doubts", "now", "cheapest", "band")},
            "about": [" ".join(about)],
            "goals": ", ".join(map(str, options.goals)),
            "goal_us": bound,
            "series": page.series(results),
            "results": results,
            "unseen": unseen,
            "unknown": [*plan["unknown"], *plan["left_out"]],
        }
    )


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"plan: the page {path} cannot be written: {error.strerror or error}") from error


def _score(options: Asked, arrivals: Source, bar: Bar) -> int:
    if not arrivals.knows_present:
        raise UsageError(f"plan: --score replays the present setting, which is not known: {_now_missing(arrivals)}")
    whole = engine.simulate(arrivals, [], 1, partial(bar.shown, "measuring"))["measured"]
    found = score.windows(arrivals, whole, options.each_us, bar)
    scored = score.pairs(found, options.each_us)
    bar.end()
    show("\n".join(score.words(scored)))
    return EXIT_OK
