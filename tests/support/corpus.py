"""The requests of tests/http/corpus; its README.md has the notation."""

import re
import tomllib
from pathlib import Path

CORPUS = Path(__file__).parents[1] / "http" / "corpus"
VALID = sorted((CORPUS / "valid").glob("*.http"), key=lambda path: path.stem)
INVALID = sorted((CORPUS / "invalid").glob("*.http"), key=lambda path: path.stem)


def request_bytes(path: Path) -> bytes:
    """The request that a file describes."""
    text = path.read_text("ascii").replace("\n", "")
    text = re.sub(r"\\\*(\d+)\((.*?)\)", lambda found: int(found[1]) * found[2], text)
    return text.encode().decode("unicode_escape").encode("latin-1")


def expectation(path: Path) -> dict[str, object]:
    return tomllib.loads(path.with_suffix(".toml").read_text())
