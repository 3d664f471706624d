"""Rules of the pages for people, as those of checks.py are of the code."""

import re
from pathlib import Path

WORDS_MAX = {"ARCHITECTURE.md": 4_000, "CONTRIBUTING.md": 1_200, "CHANGELOG.md": 1_000}
"""Pages that a newcomer reads to the end."""

CODE = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)


def links_name_headings(root: Path) -> list[str]:
    """Behind the # of a link stands a heading of the page that it leads to. That the page is there is another rule."""
    complaints = []
    for page in (*root.glob("*.md"), *root.glob("docs/**/*.md")):
        text = CODE.sub("", page.read_text())
        for target, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text):
            path = page.parent / target if target else page
            if path.suffix == ".md" and path.exists() and anchor not in headings(path):
                complaints.append(f"{page.relative_to(root)}: {target}#{anchor} is no heading")
    return complaints


def pages_are_short(root: Path) -> list[str]:
    words = {name: len((root / name).read_text().split()) for name in WORDS_MAX if (root / name).exists()}
    return [
        f"{name}: {count} words, more than {WORDS_MAX[name]}"
        for name, count in words.items()
        if count > WORDS_MAX[name]
    ]


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the web site name them."""
    titles = re.findall(r"^#+ +(.*?) *$", CODE.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


def menu_has_every_page(root: Path) -> list[str]:
    """The web site's menu, mkdocs.yml, has each page below docs/. `not_in_nav` has those for engineers."""
    path = root / "mkdocs.yml"
    menu = path.read_text() if path.exists() else ""
    named = set(re.findall(r": ([\w/.-]+\.md)$", menu, re.MULTILINE))
    block = re.search(r"^not_in_nav: \|\n((?:  .*\n)*)", menu, re.MULTILINE)
    off = tuple(line.strip().removeprefix("/") for line in block[1].splitlines()) if block else ()
    pages = {page.relative_to(root / "docs").as_posix() for page in root.glob("docs/**/*.md")}
    # The first page is README.md, and others of the root are made pages too.
    there = pages | {"index.md"} | {page.name for page in root.glob("*.md")}
    missing = sorted(page for page in pages - named if not page.startswith(off))
    return [f"mkdocs.yml: has no {page}" for page in missing] + [
        f"mkdocs.yml: {page} does not exist" for page in sorted(named - there)
    ]
