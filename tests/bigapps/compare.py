"""The differences between the answers of two servers, apart from what must differ. Pure."""

import gzip
import re
import zlib
from dataclasses import dataclass
from difflib import unified_diff
from urllib.parse import quote

from bigapps.client import Answer

OF_THE_SERVER = frozenset(
    # A server says in these its name, the time, and how the end of the body is known (RFC 9112 section 6).
    ["connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"]
)
BETWEEN_MAX = 400
"""Characters of a difference that are shown."""
LONGEST_BYTES = 2_000_000
"""Bodies beyond this are compared as bytes, without masks: patterns over many megabytes take minutes."""

HIDDEN = "…"


@dataclass(frozen=True)
class Own:
    """The port that a server listens at and the folder that it runs in: either may stand in any answer."""

    port: int
    home: str


class Masks:
    """Patterns of what differs from run to run."""

    def __init__(self, patterns: list[str]) -> None:
        self._patterns = [re.compile(pattern) for pattern in patterns]

    def hide(self, text: str, own: Own) -> str:
        """A pattern with a group hides the group alone."""
        text = re.sub(rf"(?:127\.0\.0\.1|localhost)(?::|%3A){own.port}\b", "HOST", text)
        text = text.replace(own.home, "HOME").replace(quote(own.home, safe=""), "HOME")
        for pattern in self._patterns:
            text = pattern.sub(hidden, text)
        return text


def hidden(found: re.Match[str]) -> str:
    if not found.re.groups:
        return HIDDEN
    start, end = found.start(), found.end()
    return found.string[start : found.start(1)] + HIDDEN + found.string[found.end(1) : end]


def differences(
    usual: tuple[Answer, Own], ours: tuple[Answer, Own], masks: Masks, ignored: list[str], same_body: bool = True
) -> list[str]:
    """The differences in words; each side is an answer, and the parts that are its server's own."""
    (left, _), (right, _) = usual, ours
    if left.trouble or right.trouble:
        return [f"no answer: usual {left.trouble or left.status}, ours {right.trouble or right.status}"]
    if left.status != right.status:
        return [f"status: usual {left.status}, ours {right.status} {right.body[:BETWEEN_MAX]!r}"]
    there, here = (fields(*side, masks, ignored) for side in (usual, ours))
    found = [
        f"{name}: usual {there.get(name)}, ours {here.get(name)}"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]
    if same_body:
        found += body_differences(usual, ours, masks)
    return found


def fields(answer: Answer, own: Own, masks: Masks, ignored: list[str]) -> dict[str, list[str]]:
    """The fields by their names in lower case, without those of the server's own and the contents of cookies."""
    kept: dict[str, list[str]] = {}
    for name, value in answer.fields:
        name = name.lower()
        if name in OF_THE_SERVER or name in ignored:
            continue
        if name == "set-cookie":
            value = re.sub(r"^([^=]*)=[^;]*", r"\1=" + HIDDEN, value)
            value = re.sub(r"(?i)(expires)=[^;]*", r"\1=" + HIDDEN, value)
        if name == "expires":
            value = HIDDEN
        if name == "vary":
            value = ", ".join(sorted(part.strip().lower() for part in value.split(",")))
        kept.setdefault(name, []).append(masks.hide(value, own))
    return {name: sorted(values) for name, values in kept.items()}


def body_differences(usual: tuple[Answer, Own], ours: tuple[Answer, Own], masks: Masks) -> list[str]:
    (left, left_own), (right, right_own) = usual, ours
    if left.body == right.body:
        return []
    whole, other = decoded(left), decoded(right)
    if max(len(whole), len(other)) > LONGEST_BYTES:
        return [f"body: usual {len(whole)} bytes, ours {len(other)}, and they differ"] if whole != other else []
    there = masks.hide(whole.decode("utf-8", "backslashreplace"), left_own)
    here = masks.hide(other.decode("utf-8", "backslashreplace"), right_own)
    return [] if there == here else [f"body: {first_difference(there, here)}"]


def decoded(answer: Answer) -> bytes:
    """Without gzip, whose bytes depend on when it was; other codings stay."""
    codings = [value.lower() for name, value in answer.fields if name.lower() == "content-encoding"]
    if codings == ["gzip"]:
        try:
            return gzip.decompress(answer.body)
        except (OSError, EOFError, zlib.error):
            return answer.body
    return answer.body


def first_difference(there: str, here: str) -> str:
    """The lines that differ if lines are short, else the text around the first character that differs."""
    if max(len(line) for text in (there, here) for line in [*text.splitlines(), ""]) < BETWEEN_MAX:
        lines = list(unified_diff(there.splitlines(), here.splitlines(), "usual", "ours", n=0, lineterm=""))
        return "\n".join(lines[2:])[: 3 * BETWEEN_MAX]
    at = next((i for i, (a, b) in enumerate(zip(there, here, strict=False)) if a != b), min(len(there), len(here)))
    start = max(0, at - 80)
    return f"usual …{there[start : at + BETWEEN_MAX]!r}, ours …{here[start : at + BETWEEN_MAX]!r}"


def added(usual: list[str], ours: list[str]) -> list[str]:
    """Lines that ours has more often, in order."""
    left = list(usual)
    more = []
    for line in ours:
        if line in left:
            left.remove(line)
        else:
            more.append(line)
    return more
