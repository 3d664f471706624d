"""The page of messages: it has each error and warning of the code, or its beginning, with its level, and no other."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tidy.sources import NOT_CODE, paths, product_sources

PAGE = "docs/reference/messages.md"

LOGGED = re.compile(
    r"\b(?:(?P<error>error!|decision\.error|Action::error|Shortage::of)"
    r"|(?P<warning>warn!|decision\.warning|Action::warning)"
    r"|(?:outcome|text)\s+=\s+format!)\("
)
"""A line of the log begins; the third kind has its level elsewhere."""

REASONS = re.compile(
    r"""crates/stanchion-(?:
        acceptor/src/checks
      | dispatch/src/refusal
      | generation/src/(?:credentials | expiry | identities | listeners/activated | listeners/make)
      | log/src/(?:recording | trouble)
      | master/src/(?:recycling | refork)
      | observers/src/(?:access_log/format | spans/(?:post | resource))
      | server/src/(?:handover | next_template | pidfile | threads | tree)
      | settings/src/(?:bind | checks | collector | control | datagram | effective | https_port | lane
          | listen | peers | resolve | seconds | static_dir | statsd | syslog | text | tls | warm_up | warnings
          | worker_ports)
      | sys/src/(?:activation | identity)
      | tls/src/(?:credentials | suites)
    )\.rs""",
    re.VERBOSE,
)
"""Files whose other sentences end a start, or stand in a line of the log as its reason."""

NOT_SHOWN = re.compile(
    r"\b(?:info|debug|trace|panic|unreachable|(?:debug_)?assert\w*)!\(|[.:](?:info|expect)\(|#!?\[(?!error)"
)
"""A call or attribute up to whose closing bracket no literal is an error."""

RAISED = {"UsageError": "usage", "complain": "usage", "AppLoadError": "error", "StartUpError": "error"}
"""By these names python/stanchion gives an operator a message."""

APPENDED = {"warnings": "warning", "errors": "usage", "refusals": "usage", "complaints": "usage"}
"""It gathers messages in these lists."""

LOGGED_AT = {"_ERROR": "error", "_WARNING": "warning"}
"""It logs at these levels."""

OTHER_COMMANDS = ("ctl.py", "guide.py", "doctor/", "fleet/", "plan/", "top/")
"""Commands with pages of their own."""

LITERAL = re.compile(r'"_*"')
FORMAT = re.compile(r"\\\n\s*|\\(?P<escaped>.)|(?P<brace>\{\{|\}\})|\{[^{}]*\}")
ROW = re.compile(r"^\| (?P<messages>`.*?) \| (?P<level>\w+) \| .* \|$", re.MULTILINE)
SPAN = re.compile(r"(`+) ?(.+?) ?\1(?!`)")

REST = " …"
"""With this end, a text of the page is the beginning of a text of the code."""

LEAST_WORDS = 4
"""A beginning has so many: fewer would stand for a line that no author of the page has seen."""

Message = tuple[str, str]
"""A text, and its level; "" if that stands elsewhere."""


def page_has_every_message(root: Path) -> list[str]:
    """A reader with a line of the log searches for its beginning, so the page may leave out the rest (REST)."""
    in_code: dict[str, set[str]] = {}
    for text, level in (*of_crates(root), *of_python(root)):
        in_code.setdefault(text, set()).add(level)
    rows = dict.fromkeys(in_code, 0)
    complaints = []
    for text, level in of_page(root):
        meant = meant_by(text, in_code)
        if not meant:
            complaints.append(f"{PAGE}: no code has the message '{text}', or it has fewer than {LEAST_WORDS} words")
        for message in meant:
            rows[message] += 1
            if not in_code[message] & {level, ""}:
                complaints.append(f"{PAGE}: '{message}' is no {level} but {' and '.join(sorted(in_code[message]))}")
    for message, count in rows.items():
        levels = "/".join(sorted(in_code[message])) or "message"
        if count == 0:
            complaints.append(f"{PAGE}: has no row for the {levels} '{message}'")
        elif count > 1:
            complaints.append(f"{PAGE}: has {count} texts for the {levels} '{message}'")
    return complaints


def meant_by(text: str, messages: Iterable[str]) -> list[str]:
    """The messages for which a text of the page stands: itself, or all with this beginning."""
    if not text.endswith(REST):
        return [message for message in messages if message == text]
    beginning = text.removesuffix(REST)
    if words_of(beginning) < LEAST_WORDS:
        return []
    return [message for message in messages if message.startswith(f"{beginning} ")]


def of_page(root: Path) -> Iterator[Message]:
    page = root / PAGE
    for row in ROW.finditer(page.read_text() if page.exists() else ""):
        for _, text in SPAN.findall(row["messages"].replace("\\|", "|")):
            yield normal(text), row["level"]


def of_crates(root: Path) -> Iterator[Message]:
    for name, _, text in product_sources(root):
        code = NOT_CODE.sub(lambda found: blank(found[0]), text)
        logged = set()
        for call in LOGGED.finditer(code):
            literal = LITERAL.search(code, call.end(), closing(code, call.end()))
            if literal is not None:
                logged.add(literal.start())
                yield from sentence(text[literal.start() + 1 : literal.end() - 1], call.lastgroup or "", 2)
        if not REASONS.fullmatch(name):
            continue
        hidden = [range(call.start(), closing(code, call.end())) for call in NOT_SHOWN.finditer(code)]
        for literal in LITERAL.finditer(code):
            if literal.start() not in logged and not any(literal.start() in one for one in hidden):
                yield from sentence(text[literal.start() + 1 : literal.end() - 1], "reason", 3)


def blank(found: str) -> str:
    """A literal or comment of Rust, as long as it was, and with nothing in it."""
    return f'"{"_" * (len(found) - 2)}"' if found.startswith('"') else " " * len(found)


def closing(code: str, start: int) -> int:
    """Where the bracket is closed that was opened before `start`."""
    depth = 1
    for at in range(start, len(code)):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(code[at], 0)
        if depth == 0:
            return at
    return len(code)


def sentence(literal: str, level: str, words: int) -> Iterator[Message]:
    """A literal of Rust as the log has it, if it is one of so many words."""

    def shown(found: re.Match[str]) -> str:
        if found["brace"]:
            return found["brace"][0]
        if found[0].startswith("\\"):
            return {None: "", "n": "\n"}.get(found["escaped"], found["escaped"] or "")
        return "<>"

    text = normal(FORMAT.sub(shown, literal))
    if words_of(text) >= words:
        yield text, level


def words_of(text: str) -> int:
    return sum(re.search("[a-z]{2}", word) is not None for word in text.split())


def of_python(root: Path) -> Iterator[Message]:
    for name, path in paths(root / "python/stanchion", ".py"):
        if name.startswith(OTHER_COMMANDS):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=called), args=[first, *_]) if called in RAISED:
                    yield from sentence_of(first, RAISED[called])
                case ast.Call(func=ast.Name(id="log"), args=[ast.Name(id=level), text]) if level in LOGGED_AT:
                    yield from sentence_of(text, LOGGED_AT[level])
                case ast.Call(func=ast.Attribute(value=ast.Name(id=whose), attr="append"), args=[first]) if (
                    whose in APPENDED
                ):
                    yield from sentence_of(first, APPENDED[whose])


def sentence_of(node: ast.expr, level: str) -> Iterator[Message]:
    values = node.values if isinstance(node, ast.JoinedStr) else [node]
    shown = (one.value if isinstance(one, ast.Constant) else "<>" for one in values)
    text = normal("".join(map(str, shown)))
    if words_of(text) >= 2:
        yield text, level


def normal(text: str) -> str:
    """The first line of the text, with one sign for each value."""
    text = re.sub(r"<[^<>]*>", "<>", text.split("\n")[0])
    return re.sub(r"(?:<>)+", "<>", " ".join(text.split()))
