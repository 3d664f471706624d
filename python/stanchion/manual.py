"""The manual page stanchion(1), made from the table of settings. See man(7) for its language."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from stanchion.output import written

if TYPE_CHECKING:
    from stanchion.config import Setting

_EXIT_CODES = (
    ("0", "The server was stopped, or a check found nothing wrong."),
    ("1", "An error of the server itself."),
    ("2", "Wrong usage or settings."),
    ("3", "A worker failed to boot."),
    ("4", "The app could not be loaded."),
    ("5", "An address could not be bound."),
)


def page(rows: Iterable["Setting"], commands: Sequence[tuple[str, str, str]], version: str) -> str:
    """The whole page."""
    lines = [f'.TH STANCHION 1 "" "stanchion {version}" "User Commands"', ".SH NAME"]
    lines += [r"stanchion \- serve WSGI and ASGI apps, with one waiting line for all workers", ".SH SYNOPSIS"]
    for name, rest, _ in commands:
        lines += [".br", rf"\fBstanchion {name}\fR {_text(rest)}"]
    lines += [".SH COMMANDS"]
    for name, _, words in commands:
        lines += [".TP", rf"\fB{name}\fR", _text(f"{words}.")]
    lines += [".SH APP", _text("MODULE:NAME, MODULE:FACTORY() or MODULE, in which application is tried, then app.")]
    lines += [".SH OPTIONS", "Each is also a setting of the config file."]
    for section, group in groupby(rows, key=lambda row: row.section):
        lines += [f".SS {_text(section)}"]
        for row in group:
            lines += _described(row)
    lines += [".SH EXIT STATUS"]
    for code, words in _EXIT_CODES:
        lines += [".TP", f".B {code}", words]
    lines += [".SH ENVIRONMENT", ".TP", r"\fBGUNICORN_CMD_ARGS\fR, \fBSTANCHION_CMD_ARGS\fR"]
    lines += ["Flags, as on the command line, which wins over both. The second wins over the first."]
    lines += [".SH SEE ALSO", r"\fBstanchion help\fR \fIWHAT\fR explains one flag or setting."]
    return "\n".join(lines)


def _described(row: "Setting") -> Iterator[str]:
    flags = ", ".join(rf"\fB{_text(flag)}\fR" for flag in (*row.flags, *row.off_flags))
    metavar = rf" \fI{_text(row.metavar)}\fR" if row.metavar else ""
    yield ".TP"
    yield f"{flags}{metavar}" if flags else rf"\fB{row.name}\fR (config file only)"
    yield _text(f"{row.help}.")
    for paragraph in row.long_help.split("\n\n"):
        yield ".IP"
        yield _text(" ".join(paragraph.split()))
    facts = f"Setting {row.name}, default {written(row.default, row.kind)}"
    yield ".IP"
    yield _text(f"{facts}, environment {row.env}." if row.env else f"{facts}.")


def _text(text: str) -> str:
    """As text, not as requests: those begin with a dot or a quote, and escapes with a backslash."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    escaped = "".join(one if one.isascii() else rf"\[u{ord(one):04X}]" for one in escaped)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
