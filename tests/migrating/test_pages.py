"""docs/migrating shows the files that the tests run: each file of examples/migrating, word for word."""

import re
from pathlib import Path

from support.example import EXAMPLES

PAGES = Path(__file__).parents[2] / "docs" / "migrating"
SHOWN = re.compile(
    r"^\[[^]]+\]\(\.\./\.\./examples/migrating/(?P<name>[^)]+)\):\n\n```\w+\n(?P<text>.*?)^```$", re.M | re.S
)


def test_each_file_is_shown_as_it_is() -> None:
    folder = EXAMPLES / "migrating"
    shown = {found["name"]: found["text"] for page in PAGES.glob("*.md") for found in SHOWN.finditer(page.read_text())}
    assert shown == {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
