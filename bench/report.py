"""The run as tables: medians over the rounds, with the least and the greatest beside them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bench import targets
from bench.cases import CASES, Case, row_name
from bench.columns import Column
from bench.measure import Figures
from bench.servers import OWN

Rounds = Sequence[Figures]

# The share of all cores that other processes may take during a cell before the summary says so.
OTHERS_SHARE = 0.03


@dataclass(frozen=True)
class Record:
    """One line of raw.jsonl: a cell of a round, with its figures or with the reason why there are none."""

    case: str
    server: str
    round: int
    figures: Figures
    error: str = ""
    # The server ran beside this, where a case has several such rows.
    beside: str = ""

    @property
    def row(self) -> str:
        return row_name(self.server, self.beside)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def summary(records: Sequence[Record], missing: Sequence[str]) -> str:
    parts = [
        "# Summary",
        "",
        "Medians over the turns or rounds (least..greatest); `x` is the multiple of stanchion's median.",
        "",
    ]
    parts += [f"**MISSING: {line}**\n" for line in missing]
    parts += disturbed(records)
    parts += ["## Targets", "", *targets.lines(cells_by_case(records)), ""]
    for name, case in CASES.items():
        of_case = [record for record in records if record.case == name]
        if of_case:
            parts += [f"## {case.title} (`{name}`)", "", *table(case, of_case), ""]
    return "\n".join(parts)


def disturbed(records: Sequence[Record]) -> list[str]:
    """A warning where something else ran on the machine: such a run is no evidence."""
    cells = [record for record in records if is_disturbed(record)]
    if not cells:
        return []
    return [f"**DISTURBED**: in {len(cells)} cells other processes took over {OTHERS_SHARE:.0%} of the machine.", ""]


def is_disturbed(record: Record) -> bool:
    return record.figures.get("others_share", 0.0) > OTHERS_SHARE


def cells_by_case(records: Sequence[Record]) -> targets.Cells:
    cells: targets.Cells = {}
    for record in records:
        if not record.error:
            cells.setdefault(record.case, {}).setdefault(record.row, {})[record.round] = record.figures
    return cells


def rounds_by_row(records: Sequence[Record]) -> dict[str, Rounds]:
    rounds: defaultdict[str, list[Figures]] = defaultdict(list)
    for record in records:
        if not record.error:
            rounds[record.row].append(record.figures)
    return dict(rounds)


def table(case: Case, records: Sequence[Record]) -> list[str]:
    rounds = rounds_by_row(records)
    errors = {record.row: record.error for record in records if record.error}
    titles = ["server"]
    for column in case.columns:
        titles += [column.title, "x"] if column.ratio else [column.title]
    titles.append("failures")
    lines = [f"| {' | '.join(titles)} |", f"|---|{'---:|' * (len(titles) - 1)}"]
    own = rounds.get(next((server for server in case.servers if server in OWN), ""))
    # A server that failed has no row beside anything.
    for name in dict.fromkeys((*case.rows, *case.servers)):
        if name in rounds:
            cells = [cell for column in case.columns for cell in cells_of(column, rounds[name], own)]
            failures = sum(figures["failures"] for figures in rounds[name])
            lines.append(f"| {' | '.join([name, *cells, f'{failures:.0f}'])} |")
        if name in errors:
            lines.append(f"| {name} | **FAILED**: {errors[name].replace('|', '/')} |{' |' * (len(titles) - 2)}")
    return lines


def cells_of(column: Column, rounds: Rounds, own: Rounds | None) -> list[str]:
    values = [row[column.key] for row in rounds]
    middle = median(values)
    shown = f"{middle:,.{column.digits}f}"
    if len(values) > 1:
        shown += f" ({min(values):,.{column.digits}f}..{max(values):,.{column.digits}f})"
    if not column.ratio:
        return [shown]
    base = median(row[column.key] for row in own) if own else 0.0
    return [shown, f"{middle / base:.2f}" if base else ""]
