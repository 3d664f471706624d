"""The formats of access logs: gunicorn's atoms, nginx's variables, JSON objects, and how lines show theirs. Pure.

A reader of lines takes one apart into fields, whose names are the same for all formats. A line is a stranger's text, so
no pattern looks back: a field ends at the first character of the text behind it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Fields = Mapping[str, Any]
"""Values by field: a text, or what JSON has."""

NAMES = {
    "t": "time_local",
    "D": "took_us",
    "M": "took_ms",
    "L": "took_s",
    "s": "status",
    "h": "client",
    "duration_us": "took_us",
    "request_time": "took_s",
    "upstream_response_time": "upstream_s",
    "remote_addr": "client",
    "time": "time_iso8601",
}
"""The fields of atoms, variables and keys of JSON; others are fields by their own names."""

_PATTERNS = {
    "L": r"\d{1,9}\.\d{6}",
    "request_time": r"\d{1,9}\.\d{3}",
    "upstream_response_time": r"[-\d.]{1,20}(?:(?:, | : )[-\d.]{1,20}){0,16}",
}
"""Of values in which a delimiter may stand, or which tell formats apart."""

_ATOM = re.compile(
    r"%\((?P<plain>\w+)\)s|%\(\{(?P<named>[\w.-]+)\}(?P<kind>\w)\)s|\$(?P<bare>\w+)|\$\{(?P<braced>\w+)\}"
)

FORMAT_CHARACTERS_MAX = 4_096
"""Of a format that an operator gives."""

_COMBINED = '%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s"'
_WITHOUT_TIMES = "combined"

_JSON = "JSON"
_UVICORN = re.compile(r'INFO: +[^ ]+ - "[^"]*" \d{3}')

DIGITS_MAX = 20
"""No time in microseconds has as many, and Python refuses to read thousands of them."""

US_LEAST_MEDIAN = 1_000
"""Whole numbers below it may be milliseconds or seconds as well."""


class LineFormat(NamedTuple):
    """One way to take lines apart."""

    title: str
    """How an operator knows it."""
    read: Callable[[str], Fields | None]
    """None if the line is none of these."""
    is_of_app: bool
    """Its times begin when a worker does, so no wait is in them, and the arrival is not known."""


class Unreadable(Exception):
    """The log has no format with times in it; the text says what to do."""


_MOMENTS = {"arrived_us", "msec", "time_iso8601", "time_local"}
_DURATIONS = {"service_us", "took_us", "took_ms", "took_s", "upstream_s"}


def given(text: str) -> LineFormat:
    """The reader of a format as gunicorn's `access_log_format` or nginx's `log_format` has it.

    ValueError, if it is none, or has no times.
    """
    if len(text) > FORMAT_CHARACTERS_MAX:
        raise ValueError(f"a format has at most {FORMAT_CHARACTERS_MAX} characters")
    _, names = _pattern(text)
    if not _MOMENTS & set(names) or not _DURATIONS & set(names):
        raise ValueError(
            "a format has a time of day (%(t)s, $time_local, $time_iso8601 or $msec) and a duration (%(L)s, %(D)s, "
            f"%(M)s, $request_time or $upstream_response_time), got {text!r}"
        )
    return _of(text)


def _of(text: str) -> LineFormat:
    pattern, names = _pattern(text)
    matcher = re.compile(pattern, re.DOTALL)

    def read(line: str) -> Fields | None:
        found = matcher.fullmatch(line)
        return dict(zip(names, found.groups(), strict=True)) if found else None

    return LineFormat(text, read, "%(" in text and not {"wait_us", "service_us"} & set(names))


def _pattern(text: str) -> tuple[str, list[str]]:
    """The regular expression, and the fields of its groups. A literal follows each field but the last."""
    atoms = list(_ATOM.finditer(text))
    if not atoms:
        raise ValueError(f"a format has atoms such as %(D)s, or variables such as $request_time, got {text!r}")
    pattern, names = re.escape(text[: atoms[0].start()]), []
    for atom, after in zip(atoms, [*atoms[1:], None], strict=True):
        literal = text[atom.end() : after.start() if after else len(text)]
        if not literal and after:
            raise ValueError(f"in a format something stands between {atom[0]} and {after[0]}")
        key = atom["plain"] or atom["named"] or atom["bare"] or atom["braced"]
        # `%({Date}i)s` is a field of the request, not ours.
        name = f"field {key}" if atom["kind"] not in (None, "x") else NAMES.get(key, key)
        value = _PATTERNS.get(key) or _until(literal, text[: atom.start()].endswith('"'))
        # gunicorn's time has brackets around it, nginx's format has them itself.
        pattern += r"\[([^\]]*)\]" if atom["plain"] == "t" else f"({value})"
        pattern += re.escape(literal)
        names.append(name)
    return pattern, names


def _until(literal: str, is_quoted: bool) -> str:
    """The pattern of a value before a literal."""
    if not literal:
        return ".*"
    if is_quoted and literal.startswith('"'):
        return r'(?:[^"\\]|\\.)*'
    return f"[^{re.escape(literal[0])}]*"


def _json(line: str) -> Fields | None:
    if not line.startswith("{"):
        return None
    try:
        value: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return {NAMES.get(key, key): one for key, one in value.items()}


_KNOWN = (
    (f"{_COMBINED} %(L)s", "gunicorn's, with %(L)s last", True),
    (
        f"{_COMBINED} $request_time $upstream_response_time",
        "nginx's, with $request_time $upstream_response_time last",
        False,
    ),
    (f"{_COMBINED} $request_time", "nginx's, with $request_time last", False),
    (f"{_COMBINED} %(D)s", "gunicorn's, with %(D)s last", True),
    (_COMBINED, _WITHOUT_TIMES, False),
)
"""Text formats that lines show, the strictest first: gunicorn's and nginx's begin with Apache's combined one."""

WHAT_TO_SET = """\
Write times into it:
  stanchion  --access-logfile FILE --access-log-json
  gunicorn   --access-logformat '%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s" %(L)s'
  nginx      log_format timed '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
                              '"$http_referer" "$http_user_agent" $request_time $upstream_response_time';
             access_log /var/log/nginx/access.log timed;
Of a log with times in another order give its format: --log-format FORMAT"""


def recognised(lines: Sequence[str]) -> LineFormat:
    """The format that most of these first lines have. Unreadable, if none with times has."""
    if not lines:
        raise Unreadable("it is empty.")
    if sum(map(bool, map(_UVICORN.match, lines))) * 2 > len(lines):
        raise Unreadable(
            "uvicorn's access log has neither times of day nor durations, and uvicorn has no setting for them: "
            "record a busy time with `stanchion serve` and --record-arrivals DIR, or for a WSGI app take the log of "
            "the proxy.\n" + WHAT_TO_SET
        )
    readers = [LineFormat(_JSON, _json, False), *(_named(*known) for known in _KNOWN)]
    matching = [[fields for line in lines if (fields := reader.read(line)) is not None] for reader in readers]
    for reader, found in zip(readers, matching, strict=True):
        if len(found) * 2 > len(lines):
            return _with_times(reader, found)
    raise Unreadable("its lines have no format that this program knows.\n" + WHAT_TO_SET)


def _named(text: str, title: str, is_of_app: bool) -> LineFormat:
    return LineFormat(title, _strict(_of(text).read), is_of_app)


def _strict(read: Callable[[str], Fields | None]) -> Callable[[str], Fields | None]:
    """Only lines whose last field is a number, if it is one in microseconds."""

    def checked(line: str) -> Fields | None:
        fields = read(line)
        took = "" if fields is None else str(fields.get("took_us", "0"))
        return fields if took.isdecimal() and len(took) < DIGITS_MAX else None

    return checked


def _with_times(reader: LineFormat, found: Sequence[Fields]) -> LineFormat:
    """The reader, if its lines say when and how long; Unreadable, if not."""
    if reader.title == _WITHOUT_TIMES:
        raise Unreadable("its lines say when a request ended, and not how long it took.\n" + WHAT_TO_SET)
    if reader.title == _JSON:
        return reader._replace(title=_title_of_json(found))
    whole = sorted(int(fields["took_us"]) for fields in found if "took_us" in fields)
    if whole and whole[len(whole) // 2] < US_LEAST_MEDIAN:
        raise Unreadable(
            "its lines end with whole numbers that may be microseconds, milliseconds or seconds: give its format, "
            f"as in --log-format '{_COMBINED} %(D)s', with %(D)s for microseconds, %(M)s for milliseconds."
        )
    return reader


def _title_of_json(found: Sequence[Fields]) -> str:
    keys = set().union(*found)
    if {"service_us", "wait_us"} <= keys and keys & _MOMENTS:
        return "JSON lines of stanchion"
    if keys & _DURATIONS and keys & _MOMENTS:
        return "JSON lines with nginx's variables"
    raise Unreadable(
        "its JSON lines lack the times. stanchion's have wait_us, service_us and arrived_us (--access-log-json); of "
        "nginx's variables the keys are request_time, upstream_response_time, and msec, time_iso8601 or time_local."
    )
