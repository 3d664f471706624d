"""The doctor's words for people."""

import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum

from stanchion.doctor import asked, remedies
from stanchion.doctor.facts import Facts, Listener, Network
from stanchion.doctor.finding import CRITICAL, NOTICE, SEVERITIES, WARNING, Finding
from stanchion.output import printable

COLUMNS = 80

_COLOURS = {CRITICAL: "\033[1;31m", WARNING: "\033[1;33m", NOTICE: "\033[1;36m"}
_PLAIN = "\033[0m"
_LABEL_COLUMNS = 14

_LISTENER_COLUMNS = ("waiting", "backlog", "asked", "drops", "half-open", "owner", "address")


class Detail(IntEnum):
    """How much of a finding is shown."""

    TITLE = 0
    STEPS = 1
    """How we know, and what to do now."""
    WHOLE = 2


Line = tuple[str | None, str]
"""With the severity that colours it."""


def report(facts: Facts, findings: Sequence[Finding], coloured: bool) -> str:
    """All there is."""
    lines = _plain(_summary(facts, findings)) + _of_findings(findings, [Detail.WHOLE] * len(findings))
    for network in facts.networks:
        lines += _plain(["", *_network(network)])
    if facts.not_looked_at:
        lines += _plain(["", "Not looked at:"])
        lines += _plain(line for what in facts.not_looked_at for line in _wrapped(what, "  - "))
    return _shown(lines, coloured)


def brief(facts: Facts, findings: Sequence[Finding], coloured: bool, screen: os.terminal_size) -> str:
    """As much as one screen holds: the worst finding with its steps, the titles of the others, and then the rest of
    each, the worst first. The last line says what is left out.
    """

    def lines(details: Sequence[Detail]) -> list[Line]:
        shown = _of_findings(findings[: len(details)], details)
        return [*_plain(_summary(facts, findings)), *shown, *_plain(["", *_left_out(facts, findings, details)])]

    def fits(details: Sequence[Detail]) -> bool:
        return sum(_rows(printable(text), screen.columns) for _, text in lines(details)) < screen.lines

    details = [Detail.STEPS] if findings else []
    while len(details) < len(findings) and fits([*details, Detail.TITLE]):
        details.append(Detail.TITLE)
    for wanted in (Detail.STEPS, Detail.WHOLE):
        for number, detail in enumerate(details):
            more = [*details[:number], max(detail, wanted), *details[number + 1 :]]
            if not fits(more):
                break
            details = more
    return _shown(lines(details), coloured)


def _left_out(facts: Facts, findings: Sequence[Finding], details: Sequence[Detail]) -> list[str]:
    parts = []
    if hidden := len(findings) - len(details):
        parts.append(_count(hidden, "more finding"))
    if cut := sum(detail < Detail.WHOLE for detail in details):
        parts.append(f"more about {cut} of these" if len(details) > 1 else "more about this one")
    parts.append(f"a line for each of {_count(_sockets(facts), 'socket')}")
    if facts.not_looked_at:
        parts.append(_count(len(facts.not_looked_at), "thing") + " that it could not look at")
    *first, last = parts
    return _wrapped(f"`stanchion doctor --all` shows {' and '.join(filter(None, [', '.join(first), last]))}.", "", "  ")


def _rows(line: str, columns: int) -> int:
    """That a line takes on a screen; what is to be typed may be longer than it is wide."""
    return max(1, -(-len(line) // columns))


def _shown(lines: Iterable[Line], coloured: bool) -> str:
    """In lines of which none obeys the names and files of other people's processes, with colours of ours alone."""
    return "\n".join(_painted(printable(text), severity if coloured else None) for severity, text in lines)


def _plain(texts: Iterable[str]) -> list[Line]:
    return [(None, text) for text in texts]


def _painted(line: str, severity: str | None) -> str:
    return line if severity is None else f"{_COLOURS[severity]}{line}{_PLAIN}"


def _of_findings(findings: Sequence[Finding], details: Sequence[Detail]) -> list[Line]:
    lines: list[Line] = []
    said: set[str] = set()
    # An empty line sets off whatever is more than a title.
    before = Detail.WHOLE
    for finding, detail in zip(findings, details, strict=True):
        if max(before, detail) > Detail.TITLE:
            lines += _plain([""])
        lines += [(finding.severity, text) for text in _title(finding)]
        lines += _plain(_finding(finding, detail, said))
        before = detail
    return lines


def _summary(facts: Facts, findings: Sequence[Finding]) -> list[str]:
    looked = f"{_count(_sockets(facts), 'listening socket')} in {_count(len(facts.networks), 'network namespace')}"
    watched = "" if facts.watched_s is None else f", watched for {facts.watched_s:g} s"
    counts = ((sum(finding.severity == severity for finding in findings), severity) for severity in SEVERITIES)
    found = ", ".join(
        _count(count, severity, plural="" if severity == CRITICAL else "s") for count, severity in counts if count
    )
    return [f"Linux {facts.kernel}: {looked}{watched}.", f"{found or 'Nothing found'}."]


def _sockets(facts: Facts) -> int:
    return sum(len(network.listeners) for network in facts.networks)


def _count(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{'' if number == 1 else plural}"


def _title(finding: Finding) -> list[str]:
    return _wrapped(f"{finding.severity.upper()}: {finding.what} [{finding.code}]", "", "  ")


def _finding(finding: Finding, detail: Detail, said: set[str]) -> Iterator[str]:
    """`said` are the steps that stand above already."""
    if detail >= Detail.STEPS:
        yield from _labelled("How we know", [finding.known])
    if detail == Detail.WHOLE:
        yield from _labelled("Clients see", [finding.clients_see])
    if detail >= Detail.STEPS:
        yield from _labelled("Now", _not_again(finding.now, said))
    if detail == Detail.WHOLE:
        yield from _labelled("Containers", _not_again(remedies.in_containers(finding.sysctls), said))
        yield from _labelled("For good", _not_again(finding.for_good, said))


def _labelled(label: str, texts: Sequence[str]) -> Iterator[str]:
    for index, text in enumerate(texts):
        begin = f"  {label if index == 0 else ''}".ljust(_LABEL_COLUMNS) + " "
        # A command to be typed, or text that is aligned by hand, stays on one line.
        yield from [begin + text] if text.startswith(("$ ", " ")) or ":  " in text else _wrapped(text, begin)


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
        yield "  no listening sockets"
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
        f"{asked.name(listener.owners[0])} ({listener.owners[0].pid})" if listener.owners else "-",
        f"unix:{listener.address}" if listener.family == "unix" else listener.address,
    )
