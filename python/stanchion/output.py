"""Text for people, who may pipe it into head(1), or read it on a terminal that obeys control characters."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stanchion.effective import UsageError

MASK = "***"

# The part before the host of a URL (RFC 3986 section 3.2.1), also with characters that should be escaped there.
_USERINFO = re.compile(r"(?<=://)\S*@")

# The name in `name=value`, `name: value` or `'name': 'value'`.
_NAME = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s*[=:]\s*""")
# Its words, whether they are joined by other characters or written like camelCase.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORD = re.compile(
    r"(?:key|pass|sig|cookie|\w*(?:secret|token|password|passwd|passphrase|pwd|credential|authorization|signature|"
    r"(?:api|access|secret|private|signing)key))s?",
    re.IGNORECASE,
)
# The value of a secret: a list, as the user and password of a mail handler; a text, perhaps with escaped quotes; or a
# word.
_SECRET = re.compile(
    r"""[\[({][^\])}]*[\])}]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?:(?:bearer|basic)\s+)?[^\s"',;&)]+""", re.IGNORECASE
)
# Credentials follow the name of a scheme, whichever it is (RFC 9110 section 11.4); the name of another value does not.
_CREDENTIALS = re.compile(r""""[^"]*"|'[^']*'|[^\s"',;&)]+(?:[ \t]+(?![\w.-]+=[^\s=]|%\()[^\s"',;&)]+)?""")


def show(text: str) -> None:
    """Print it, line by line, with nothing else in it that a terminal would obey."""
    put("\n".join(map(printable, text.split("\n"))))


def put(text: str) -> None:
    """Print a text that is known to be harmless. The reader may close the pipe before the end."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python flushes the rest at exit: let that go elsewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(text: str) -> None:
    """The same as `show`, on standard error."""
    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)


def complain_of(error: UsageError) -> None:
    """The traceback, if there is one, and each reason under the program's name."""
    if error.traceback is not None:
        complain(error.traceback)
    for reason in error.reasons:
        complain(f"stanchion: {reason}")


def as_json(value: Any, indent: int | None = None) -> str:
    """In ASCII, and without the one control character that JSON leaves as it is."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def printable(text: str) -> str:
    """With everything that a terminal would obey, or that would reorder a line, written as an escape sequence.

    A path is what a client wanted it to be.
    """
    return "".join(map(_escaped, text))


def written(value: Any, kind: str = "") -> str:
    """A value of a setting of this kind as people write it."""
    match value:
        case int() if kind == "octal":
            return f"{value:#o}"
        case None | [] | "" | dict() if not value:
            return "none"
        case bool():
            return "true" if value else "false"
        case list():
            return ", ".join(value)
        case dict():
            return ", ".join(f"{name}: {text}" for name, text in value.items())
    return str(value)


def masked(value: Any) -> Any:
    """A value without what looks like a secret in it: after a name that says so, or before the @ of a URL."""
    if isinstance(value, list):
        return [masked(item) for item in value]
    if not isinstance(value, str):
        return value
    return _without_named(_USERINFO.sub(f"{MASK}@", value))


def _without_named(text: str) -> str:
    shown = ""
    end = 0
    for found in _NAME.finditer(text):
        words = [word.lower() for word in _WORD.findall(found[1])]
        if found.start() < end or not any(map(_SECRET_WORD.fullmatch, words)):
            continue
        secret = (_CREDENTIALS if "authorization" in words else _SECRET).match(text, found.end())
        if secret is not None:
            shown += text[end : found.end()] + MASK
            end = secret.end()
    return shown + text[end:]


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    # Imported here, so that no process has it in its memory for nothing.
    import unicodedata

    # Cc are the control characters, Cf among others those of direction, Cs surrogates; Zl and Zp break lines.
    category = unicodedata.category(character)
    if not category.startswith("C") and category not in ("Zl", "Zp"):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
