"""The command line of the lab."""

import argparse
import signal
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from stanchion_lab import cage, doctor, engine, result, scenario
from stanchion_lab.output import show
from stanchion_lab.progress import progress
from stanchion_lab.result import Result
from stanchion_lab.scenario import Experiment, Mistake

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

DESCRIPTION = """\
Experiments on waiting lines, run with the real programs in network namespaces of their own, and shown as pictures.
The host's settings are never touched, load goes to the loopback of the namespace only, and nothing is left behind."""

EPILOG = """\
  stanchion-lab doctor                       what is missing here, and the package that has it
  stanchion-lab run unix-backlog             a few seconds to a minute
  stanchion-lab run unix-backlog --full      as in the document it is from: up to many minutes
  stanchion-lab run ./mine.toml              your own: docs/lab/writing-an-experiment.md"""


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    # Clear up on the way out, whatever signal ends the run. A signal that is ignored stays so: nohup(1).
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, signal.default_int_handler)
    try:
        code: int = options.command(options)
    except Mistake as error:
        print(f"stanchion-lab: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("stanchion-lab: stopped; nothing is left behind", file=sys.stderr)
        return EXIT_INTERRUPTED
    return code


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("stanchion-lab", description=DESCRIPTION, epilog=EPILOG, formatter_class=raw)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="the experiments, and the question of each")
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(command=_list)

    run = commands.add_parser("run", help="run experiments and write a report of each")
    run.add_argument("names", nargs="+", metavar="NAME", help="an experiment, a .toml file, or `all`")
    size = run.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="size", action="store_const", const="quick", help="small; the default")
    size.add_argument("--full", dest="size", action="store_const", const="full", help="as large as in its document")
    run.add_argument("--repeats", type=int, metavar="N", help="measure each trial N times")
    run.add_argument("--out", type=Path, default=Path("lab-results"), metavar="DIR", help="default: %(default)s")
    run.add_argument("--json", action="store_true", help="print the results as JSON; progress goes to standard error")
    run.set_defaults(command=_run, size="quick")

    reporting = commands.add_parser("report", help="write the pages of results again")
    reporting.add_argument("results", nargs="+", type=Path, metavar="DIR", help="what `run` wrote, or a kept result")
    reporting.add_argument("--out", type=Path, metavar="DIR", help="default: where the result is")
    reporting.set_defaults(command=_report)

    keeping = commands.add_parser("keep", help="write what a repository keeps: a page, its picture, one small file")
    keeping.add_argument("results", nargs="+", type=Path, metavar="DIR", help="what `run` wrote")
    keeping.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the files of all results go")
    keeping.set_defaults(command=_keep)

    looking = commands.add_parser("doctor", help="what is missing here, and the package that has it")
    looking.add_argument("--json", action="store_true")
    looking.set_defaults(command=lambda options: doctor.run(as_json=options.json))
    return parser


def _list(options: argparse.Namespace) -> int:
    experiments = [scenario.read(path.stem, "quick") for path in scenario.shipped()]
    if options.json:
        show(msgspec.json.encode([_entry(one) for one in experiments]).decode())
        return EXIT_OK
    width = max(len(one.name) for one in experiments)
    for one in experiments:
        show(f"{one.name:{width}}  {one.scenario.title}\n{'':{width}}  {one.scenario.question}\n")
    return EXIT_OK


def _entry(one: Experiment) -> dict[str, object]:
    trials = [trial.name for trial in one.scenario.trials]
    return {"name": one.name, "title": one.scenario.title, "question": one.scenario.question, "trials": trials}


def _run(options: argparse.Namespace) -> int:
    names = [path.stem for path in scenario.shipped()] if options.names == ["all"] else options.names
    # All are read before the first is run: a mistake in the last must not cost the time of the others.
    experiments = [scenario.read(name, options.size, options.repeats) for name in names]
    lack = cage.unavailable()
    if lack:
        raise Mistake(lack)
    # Imported here: these draw, and take a second to import, for which a user with a mistyped name shall not wait.
    from stanchion_lab import report
    from stanchion_lab.report import text

    results = {}
    for number, experiment in enumerate(experiments, 1):
        with progress(experiment, number, len(experiments)) as watch:
            done = engine.run(experiment, watch)
        directory = options.out / f"{experiment.name}-{experiment.size}-{datetime.now():%Y%m%d-%H%M%S}"
        result.write(done, directory)
        page = report.render(done, directory)
        results[page] = done
        if not options.json:
            show(f"{text.summary(done)}\n{page}\n")
    if len(results) > 1:
        index = report.render_index(results, options.out)
        if not options.json:
            show(str(index))
    if options.json:
        show(msgspec.json.encode(list(results.values())).decode())
    return EXIT_OK if all(map(_whole, results.values())) else EXIT_FAILED


def _whole(done: Result) -> bool:
    """Whether every trial that could be run here has its figures. Claims that do not hold are results, not failures."""
    return bool(done.measured) and not any(one.failure for one in done.measured)


def _report(options: argparse.Namespace) -> int:
    from stanchion_lab import report

    for path in options.results:
        directory = options.out or (path if path.is_dir() else path.parent)
        show(str(report.render(result.read(path), directory)))
    return EXIT_OK


def _keep(options: argparse.Namespace) -> int:
    from stanchion_lab import report

    for path in options.results:
        show(str(report.keep(result.read(path), options.out)))
    return EXIT_OK
