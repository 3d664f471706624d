"""The index by task in CONTRIBUTING.md: each file that it names exists, and each item that it names is in that file."""

import re
from pathlib import Path

from tidy.sources import rust_code

PAGE = "CONTRIBUTING.md"
TITLE = "Where to go"
PLACE = re.compile(r"`([\w.-]+(?:/[\w.-]+)+)`(?:\s+\(([^()]*)\))?")
ITEM = {
    ".rs": r"\b(?:fn|struct|enum|trait|type|const|static|mod) {0}\b|^\s+(?:pub(?:\([^)]*\))? )?{0}(?:: | \{{$|,$|\()",
    ".py": r"^(?:class|(?:async )?def) {0}\b|^{0}\b[^=\n]*=",
}
"""A definition of the item, by the ending of its file; in a macro, the name at the head of a block."""


def index_names_places(root: Path) -> list[str]:
    page = root / PAGE
    chapters = re.split(r"^## ", page.read_text(), flags=re.MULTILINE) if page.exists() else []
    if len(chapters) < 2 or not chapters[1].startswith(TITLE):
        return [f"{PAGE}: does not begin with the chapter '{TITLE}'"]
    complaints = []
    for task in re.split(r"^- ", chapters[1], flags=re.MULTILINE)[1:]:
        places = PLACE.findall(task)
        if not places:
            complaints.append(f"{PAGE}: '{task.splitlines()[0]}' names no place")
        for name, inside in places:
            items = re.findall(r"`(\w+)`", inside)
            complaints += [f"{PAGE}: {complaint}" for complaint in missing(root, name, items)]
    return complaints


def missing(root: Path, name: str, items: list[str]) -> list[str]:
    path = root / name
    if not path.exists():
        return [f"{name} does not exist"]
    if not items:
        return []
    text = path.read_text()
    code = rust_code(text) if path.suffix == ".rs" else text
    defined = ITEM.get(path.suffix, r"\b{0}\b")
    return [f"{name} has no {item}" for item in items if not re.search(defined.format(item), code, re.MULTILINE)]
