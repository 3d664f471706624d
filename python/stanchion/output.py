"""What is printed for people, who may read it through head, on a terminal that obeys what it is sent."""

import json
import os
import re
import sys
import unicodedata
from typing import Any

MASK = "***"

# What comes before the host of a URL (RFC 3986 section 3.2.1).
_USERINFO = re.compile(r"(?<=://)[^/?#@\s]*@")

# `name=value`, `name: value` or `'name': 'value'` where the name says it.
_NAMED = re.compile(
    r"""([\w.-]*(?:secret|token|passw|pwd|key|credential|authorization|cookie)[\w.-]*["']?\s*[=:]\s*)"""
    r"""(?:"[^"]*"|'[^']*'|(?:(?:bearer|basic)\s+)?[^\s"',;&)]+)""",
    re.IGNORECASE,
)


def show(text: str) -> None:
    """Print it, line by line, with nothing else in it that a terminal would obey."""
    put("\n".join(map(printable, text.split("\n"))))


def put(text: str) -> None:
    """Print what is known to be harmless; whoever reads it may have seen enough before the end."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # What Python flushes at exit must go elsewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(text: str) -> None:
    """The same as `show`, on standard error."""
    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)


def as_json(value: Any, indent: int | None = None) -> str:
    """In ASCII, and without the one control character that JSON leaves as it is."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def printable(text: str) -> str:
    """With everything that a terminal would obey, or that would reorder a line, written as an escape sequence.

    A path is what a client wanted it to be.
    """
    return "".join(map(_escaped, text))


def masked(value: Any) -> Any:
    """A value without what looks like a secret in it: after a name that says so, or before the @ of a URL."""
    if isinstance(value, list):
        return [masked(item) for item in value]
    if not isinstance(value, str):
        return value
    return _NAMED.sub(rf"\g<1>{MASK}", _USERINFO.sub(f"{MASK}@", value))


def _escaped(character: str) -> str:
    # Cc are the control characters, Cf among others those of direction, Cs surrogates; Zl and Zp break lines.
    category = unicodedata.category(character)
    if not category.startswith("C") and category not in ("Zl", "Zp"):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
