"""The doctor's words for people."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from stanchion.doctor.facts import Facts, Listener, Network
from stanchion.doctor.finding import CRITICAL, NOTICE, SEVERITIES, WARNING, Finding
from stanchion.output import printable

COLUMNS = 80

_COLOURS = {CRITICAL: "\033[1;31m", WARNING: "\033[1;33m", NOTICE: "\033[1;36m"}
_PLAIN = "\033[0m"
_LABEL_COLUMNS = 14

_LISTENER_COLUMNS = ("waiting", "backlog", "asked", "drops", "half-open", "owner", "address")


def report(facts: Facts, findings: Sequence[Finding], coloured: bool) -> str:
    """In lines of which none obeys the names and files of other people's processes, with colours of ours alone."""
    parts: list[tuple[str | None, Iterable[str]]] = [(None, _summary(facts, findings))]
    said: set[str] = set()
    for finding in findings:
        parts += [(None, [""]), (finding.severity, _title(finding)), (None, list(_finding(finding, said)))]
    for network in facts.networks:
        parts += [(None, [""]), (None, _network(network))]
    if facts.not_looked_at:
        parts.append((None, ["", "Not looked at:"]))
        parts += [(None, _wrapped(what, "  - ")) for what in facts.not_looked_at]
    return "\n".join(
        _painted(printable(line), severity if coloured else None) for severity, lines in parts for line in lines
    )


def _painted(line: str, severity: str | None) -> str:
    return line if severity is None else f"{_COLOURS[severity]}{line}{_PLAIN}"


def _summary(facts: Facts, findings: Sequence[Finding]) -> list[str]:
    sockets = sum(len(network.listeners) for network in facts.networks)
    looked = f"{_count(sockets, 'listening socket')} in {_count(len(facts.networks), 'network namespace')}"
    watched = "" if facts.watched_s is None else f", watched for {facts.watched_s:g} s"
    counts = ((sum(finding.severity == severity for finding in findings), severity) for severity in SEVERITIES)
    found = ", ".join(
        _count(count, severity, plural="" if severity == CRITICAL else "s") for count, severity in counts if count
    )
    return [f"Linux {facts.kernel}: {looked}{watched}.", f"{found or 'Nothing found'}."]


def _count(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{'' if number == 1 else plural}"


def _title(finding: Finding) -> list[str]:
    return _wrapped(f"{finding.severity.upper()}: {finding.what} [{finding.code}]", "", "  ")


def _finding(finding: Finding, said: set[str]) -> Iterator[str]:
    """`said` are the steps that stand above already."""
    for label, text in (("How we know", finding.known), ("Clients see", finding.clients_see)):
        yield from _wrapped(text, f"  {label}".ljust(_LABEL_COLUMNS) + " ")
    for label, steps in (("Now", finding.now), ("For good", finding.for_good)):
        for index, step in enumerate(_not_again(steps, said)):
            begin = f"  {label if index == 0 else ''}".ljust(_LABEL_COLUMNS) + " "
            # What is to be typed, or aligned by hand, stays on one line.
            yield from [begin + step] if step.startswith(("$ ", " ")) or ":  " in step else _wrapped(step, begin)


def _not_again(steps: Sequence[str], said: set[str]) -> list[str]:
    new = [step for step in steps if step not in said]
    shown = new if len(new) == len(steps) else ["As above.", *new]
    said.update(steps)
    return shown


def _wrapped(text: str, begin: str, then: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        COLUMNS - 1,
        initial_indent=begin,
        subsequent_indent=" " * len(begin) if then is None else then,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _network(network: Network) -> Iterator[str]:
    title = "This network namespace" if network.is_ours else f"Network namespace {network.name}"
    settings = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in network.sysctls.items())
    counters = ", ".join(
        f"{name} {value}{f' (+{network.counters_grown[name]})' if network.counters_grown.get(name) else ''}"
        for name, value in network.counters.items()
    )
    yield from _wrapped(f"{title}, {network.link}: {settings}; {counters}.", "", "  ")
    yield from table(network.listeners)


def table(listeners: Sequence[Listener]) -> Iterator[str]:
    """A line for each socket."""
    rows = [_LISTENER_COLUMNS, *(_row(listener) for listener in listeners)]
    if len(rows) == 1:
        yield "  nobody listens"
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        figures = (f"{cell:>{width}}" for cell, width in zip(row[:5], widths, strict=False))
        yield f"  {'  '.join(figures)}  {row[5]:{widths[5]}}  {row[6]}".rstrip()


def _row(listener: Listener) -> tuple[str, ...]:
    peak = listener.waiting_peak
    drops = "-" if listener.drops is None else str(listener.drops)
    return (
        str(listener.waiting) + (f" (max {peak})" if peak is not None else ""),
        str(listener.backlog),
        "-" if listener.backlog_asked is None else str(listener.backlog_asked),
        drops + (f" (+{listener.drops_grown})" if listener.drops_grown else ""),
        str(listener.half_open) if listener.family == "tcp" else "-",
        f"{listener.owners[0].name} ({listener.owners[0].pid})" if listener.owners else "-",
        f"unix:{listener.address}" if listener.family == "unix" else listener.address,
    )
