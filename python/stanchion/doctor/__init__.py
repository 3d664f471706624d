"""`stanchion doctor`: one look at a host or container that says why connections get lost, at servers of any kind.

The doctor is no part of a server, and `serve` imports nothing of it. `gather.py` gathers facts (from network.rs of the
server's crate, /proc and systemctl), `admin.py` and `stacks.py` ask stanchions, pure functions make findings of the
facts (`servers.py`, `queues.py`, `limits.py`, `event_loops.py`, `nginx.py`), and `words.py` shows them.
"""

import argparse
import dataclasses
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from stanchion import __version__
from stanchion.arguments import Parser, ask_for_help, seconds
from stanchion.doctor import (
    admin,
    certificates,
    event_loops,
    finding,
    fix,
    gather,
    limits,
    queues,
    servers,
    settings,
    stacks,
    words,
)
from stanchion.doctor import watch as watching
from stanchion.doctor.facts import Facts
from stanchion.doctor.finding import Finding
from stanchion.doctor.settings import Settings
from stanchion.effective import UsageError
from stanchion.output import as_json, complain, put, show

EXIT_WELL = 0
EXIT_FOUND = 1
EXIT_BLIND = 3

WATCH_S_MAX = 86_400.0

USAGE = """\
Usage: stanchion doctor [--all | --json] [--watch SECONDS] [--nginx FILE]
                        [--this-one] [--fix [--yes]]

Looks at every listening socket of this host or container, of any program, and
says why connections get lost, how we know, what clients see, and what helps:
the worst first, and one screen of it. Needs no privilege; as root it sees
other users' processes and the network namespaces of containers too.

  --all              More than a screen: all there is to say of each finding, a
                     line for each socket, and what could not be looked at
  --json             All facts and findings as JSON
  --watch SECONDS    Look at what grows meanwhile: drops, and the longest queue
  --nginx FILE       Look at this nginx.conf too (wants the extra
                     stanchion[doctor])
  --this-one         Leave other network namespaces alone
  --fix              Show which sysctls would help here, ask, and set them, now
                     and in /etc/sysctl.d; nothing is written without a yes
  --yes              The yes

Exit codes: 0 nothing worse than a notice; 1 a warning or worse; 2 wrong usage;
3 could not look."""


class Blind(Exception):
    """The doctor cannot look at what it was asked for; the text says why."""


def run(arguments: Sequence[str], parse: settings.Parse) -> int:
    """Run the command and return its exit code. `parse` reads a command line of `serve`."""
    if ask_for_help(arguments):
        show(USAGE)
        return EXIT_WELL
    options = _parse(arguments)
    try:
        facts, findings = examine(options.watch, options.nginx, not options.this_one, partial(settings.of, parse=parse))
    except Blind as blind:
        complain(f"stanchion: {blind}")
        return EXIT_BLIND
    except OSError as error:
        complain(f"stanchion: the kernel does not let us look: {error}")
        return EXIT_BLIND
    if options.json:
        put(_as_json(facts, findings))
    elif options.all:
        put(words.report(facts, findings, sys.stdout.isatty()))
    else:
        put(words.brief(facts, findings, sys.stdout.isatty(), shutil.get_terminal_size()))
    if options.fix:
        _fix(facts, findings, options.yes)
    return EXIT_FOUND if any(one.severity != finding.NOTICE for one in findings) else EXIT_WELL


def examine(
    watch_s: float | None, nginx_file: str | None, all_networks: bool, settings_of: Callable[[int], Settings | None]
) -> tuple[Facts, list[Finding]]:
    """The facts, and the findings about them, the worst first."""

    def look() -> Facts:
        return gather.look(all_networks)

    # The file is read before anything takes time.
    with_nginx = _with_nginx(nginx_file, settings_of) if nginx_file else lambda facts: (facts, [])
    facts = watching.watch(watch_s, look) if watch_s else look()
    facts = stacks.with_places(admin.with_status(facts, settings_of))
    facts, of_nginx = with_nginx(facts)
    of_loops = event_loops.findings(facts, settings_of)
    of_tls = certificates.findings(facts, time.time())
    # Among equals a server's own word comes first, as it says why a queue fills; idle sockets come last.
    of_queues = [*servers.findings(facts), *queues.findings(facts)]
    others = [*limits.findings(facts), *of_loops, *of_tls, *of_nginx]
    return facts, finding.by_harm([*of_queues, *others, *queues.of_idle(facts)])


def _with_nginx(
    file: str, settings_of: Callable[[int], Settings | None]
) -> Callable[[Facts], tuple[Facts, list[Finding]]]:
    """A function that adds the backlogs in the file to the facts, and returns the findings about the file."""
    try:
        from stanchion.doctor import nginx
    except ModuleNotFoundError as error:
        if error.name != "crossplane":
            raise
        raise Blind("--nginx needs crossplane, which is not installed: pip install 'stanchion[doctor]'") from error
    configuration = nginx.read(file)

    def added(facts: Facts) -> tuple[Facts, list[Finding]]:
        facts = nginx.with_backlog_asked(configuration, facts)
        return facts, list(nginx.findings(configuration, facts, settings_of))

    return added


def _as_json(facts: Facts, findings: Sequence[Finding]) -> str:
    whole = {
        "version": __version__,
        "findings": [dataclasses.asdict(one) for one in findings],
        "facts": dataclasses.asdict(facts),
    }
    return as_json(whole, indent=2)


def _fix(facts: Facts, findings: Sequence[Finding], is_yes: bool) -> None:
    plan = fix.plan(facts, findings)
    if not plan.sysctls:
        show("\nThere is no setting of this network namespace to fix.\n" + plan.shown())
        return
    show("\n" + plan.shown())
    if not fix.agreed(is_yes, sys.stdin.isatty() and sys.stdout.isatty(), input):
        show("Nothing was changed." + ("" if sys.stdin.isatty() else " Give --yes to run without a terminal."))
        return
    try:
        fix.carry_out(plan)
    except OSError as error:
        raise UsageError(f"doctor: the sysctls cannot be set here: {error}") from error
    show("Done. A backlog stays what it was at listen(2): restart the servers named above.")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("doctor", hint="; see `stanchion doctor --help`")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--all", action="store_true")
    shown.add_argument("--json", action="store_true")
    parser.add_argument("--watch", type=seconds(WATCH_S_MAX), metavar="SECONDS")
    parser.add_argument("--nginx", metavar="FILE")
    parser.add_argument("--this-one", action="store_true")
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("--yes", action="store_true")
    options = parser.parse_args(arguments)
    if options.yes and not options.fix:
        parser.error("--yes is the answer to --fix")
    if options.fix and options.json:
        parser.error("--fix speaks to people, so not with --json")
    return options
