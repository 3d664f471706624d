"""Sentences have a subject: a comment, a page or a message begins with its actor and says what the actor does."""

import re
from collections.abc import Iterator
from pathlib import Path

from tidy.sources import paths

PLACES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "crates/", "docs/", "python/", "tests/")
SHARE_MAX = 0.002
"""The share of lines of prose that may have no subject: a page may quote one."""

HIDDEN = {
    "begins with a relative clause": re.compile(
        r"(?:^|[.:;!] )(?:Who|Whoever|Whom|Whose|What|Whatever|Of (?:what|which|whom|whose|these|those|all|others))\b"
        r"(?![^.]*\?)"
    ),
    "names no actor": re.compile(r"\b(?:nobody|somebody|everybody|whoever|whomever|whom)\b", re.IGNORECASE),
    "says 'told' for logs, reports, sends or shows": re.compile(
        r"\b(?:is|are|was|were|be|been) told\b|\bt(?:ell|ells|old) of\b", re.IGNORECASE
    ),
    "points back instead of repeating the noun": re.compile(
        r"(?:^|[.;] )(?:That|Those|Ones?|Others) (?:of|that|which|who)\b"
    ),
    "has a word that few readers know": re.compile(
        r"\b(?:anew|likewise|thereby|therein|hereby|thereof)\b", re.IGNORECASE
    ),
}

COMMENT = {".rs": re.compile(r"(?:^\s*|\s)//[/!]?(?: (.*))?$"), ".py": re.compile(r"(?:^\s*|  )#(?: (.*))?$")}
MESSAGE = re.compile(r"\b(?:debug|info|warn|error|println|eprintln|print)!?\(|^\s*f?\"")
QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"")


def sentences_have_subjects(root: Path) -> list[str]:
    lines, found = 0, []
    for name, number, text in prose(root):
        lines += 1
        plain = re.sub(r"`[^`]*`", "``", text)
        found += [f"{name}:{number}: {why}: {text[:120]}" for why, hidden in HIDDEN.items() if hidden.search(plain)][:1]
    return found if len(found) > lines * SHARE_MAX else []


def prose(root: Path) -> Iterator[tuple[str, int, str]]:
    """Each line that a person reads as a sentence: (its file, its number, its text)."""
    for name, path in paths(root, ".md", ".py", ".rs"):
        if name.startswith(PLACES):
            for number, text in lines_of(path):
                if text := text.strip(" #*>|-\t"):
                    yield name, number, text


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    inside = False  # of a block of code in a page, or of a docstring
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if path.suffix == ".md":
            inside ^= line.lstrip().startswith("```")
            if not inside and not line.startswith("    "):
                yield number, line
            continue
        if path.suffix == ".py" and line.count('"""') == 1:
            inside = not inside
            yield number, line.replace('"""', "")
        elif inside or (path.suffix == ".py" and line.count('"""') == 2):
            yield number, line.replace('"""', "")
        elif comment := COMMENT[path.suffix].search(line):
            yield number, comment[1] or ""
        elif MESSAGE.search(line):
            yield from ((number, text) for text in QUOTED.findall(line))
