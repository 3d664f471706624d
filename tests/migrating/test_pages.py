"""docs/migrating leads to each file of examples/migrating, which tests run; what it shows is word for word."""

import re
from pathlib import Path

from support.example import EXAMPLES

PAGES = [page.read_text() for page in (Path(__file__).parents[2] / "docs" / "migrating").glob("*.md")]
LINK = re.compile(r"\]\(\.\./\.\./examples/migrating/([^)#]+)\)")
SHOWN = re.compile(
    r"^\[[^]]+\]\(\.\./\.\./examples/migrating/(?P<name>[^)]+)\):\n\n```\w+\n(?P<text>.*?)^```$", re.M | re.S
)


def test_each_file_has_a_link() -> None:
    folder = EXAMPLES / "migrating"
    linked = {name for page in PAGES for name in LINK.findall(page)}
    assert linked == {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_each_file_that_is_shown_is_shown_as_it_is() -> None:
    shown = {found["name"]: found["text"] for page in PAGES for found in SHOWN.finditer(page)}
    assert shown
    assert shown == {name: (EXAMPLES / "migrating" / name).read_text() for name in shown}
