"""docs/diagnosis.md against the code: a row for each finding, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def codes() -> Iterator[str]:
    """The codes of findings; of a code that is made for each of several things, the part they have in common."""
    for path in (CHECKOUT / "python/stanchion/doctor").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                [code, *_] = node.args
                if isinstance(code, ast.JoinedStr):
                    [code, *_] = code.values
                assert isinstance(code, ast.Constant)
                yield code.value


def listed() -> Iterator[str]:
    """The first column of the tables of findings; `pressure-cpu`, `-io`, `-memory` are `pressure-` three times."""
    page = (CHECKOUT / "docs/diagnosis.md").read_text()
    for table in re.findall(r"^\| finding \|.*\n\|[-| ]+\n((?:\|.*\n)+)", page, re.MULTILINE):
        for row in table.splitlines():
            cell = row.split("|")[1].partition(":")[0]
            yield from (code for code in re.findall(r"`([^`]+)`", cell) if not code.startswith("-"))


def test_every_finding_has_a_row_and_every_row_is_one() -> None:
    prefixes = {code for code in codes() if code.endswith("-")}
    rows = [next((prefix for prefix in prefixes if code.startswith(prefix)), code) for code in listed()]
    assert sorted(rows) == sorted(codes())
