"""The words of the command line: help and the table of `stanchion check`."""

import textwrap
from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Any

from stanchion.config import Effective, Setting, schema
from stanchion.output import MASK, masked

_COLUMNS = 79

# Beyond this a flag pushes its help aside rather than every other one.
_FLAGS_COLUMNS_MAX = 32

# Beyond this a value pushes its origin aside rather than every other one.
_VALUE_COLUMNS_MAX = 40

_HEAD = """\
Usage: stanchion [serve] [FLAGS] [APP]         serve a WSGI app
       stanchion check [FLAGS] [APP]           print the effective settings
       stanchion ctl COMMAND                   command a running server
       stanchion top                           look at a running server
       stanchion doctor                        say why connections get lost
       stanchion lab                           repeat the experiments on lines

APP is MODULE:NAME, MODULE:FACTORY() or MODULE. Flags are gunicorn's where
gunicorn has them."""

_OTHER = (
    ("-h", "This page"),
    ("--help", "The same with every detail"),
    ("-v, --version", "Print the version"),
)

_TAIL = """\
Order, the last wins: defaults, environment variables, config file,
GUNICORN_CMD_ARGS, STANCHION_CMD_ARGS, command line. A list is replaced, not
extended.

Exit codes: 0 stopped as asked; 1 an error of the server itself; 2 wrong usage
or settings; 3 a worker failed to boot; 4 the app could not be loaded; 5 an
address could not be bound."""


def short_help() -> str:
    """One line for each flag, in 79 columns."""
    rows = [(_short_flags(setting), setting) for setting in schema() if setting.flags]
    width = max(len(flags) for flags, _ in rows if len(flags) <= _FLAGS_COLUMNS_MAX)
    lines = [_HEAD]
    for section, group in groupby(rows, key=lambda row: row[1].section):
        lines.append(f"\n{section}:")
        lines.extend(f"  {flags:{width}}  {setting.help}" for flags, setting in group)
    lines.append("\nOther:")
    lines.extend(f"  {flags:{width}}  {text}" for flags, text in _OTHER)
    return "\n".join(lines)


def full_help() -> str:
    """Everything that is known about each setting."""
    lines = [_HEAD]
    for section, group in groupby(schema(), key=lambda setting: setting.section):
        lines.append(f"\n{section}:")
        for setting in group:
            lines.extend(_described(setting))
    lines.extend(("\nOther:", *(f"  {flags:15}{text}" for flags, text in _OTHER), "", _TAIL))
    return "\n".join(lines)


def table(effective: Effective, names: Collection[str]) -> str:
    """These effective settings with their values and where each came from, by section."""
    rows = [setting for setting in schema() if setting.name in names]
    shown = {row.name: show(without_secrets(row.name, effective.values[row.name]), row.kind) for row in rows}
    names_width = max(map(len, shown))
    values_width = max((len(text) for text in shown.values() if len(text) <= _VALUE_COLUMNS_MAX), default=0)
    lines: list[str] = []
    for section, group in groupby(rows, key=lambda setting: setting.section):
        lines.append(f"{section}:" if not lines else f"\n{section}:")
        for setting in group:
            name, origin = setting.name, effective.origins[setting.name]
            lines.append(f"  {name:{names_width}}  {shown[name]:{values_width}}  {origin}")
    return "\n".join(lines)


def plain_table(effective: Effective) -> str:
    """Every effective setting by its name, as gunicorn --print-config writes them."""
    values = effective.values
    width = max(map(len, values))
    return "\n".join(f"{name:{width}} = {without_secrets(name, values[name])}" for name in sorted(values))


def privileges(plan: list[tuple[str, str]] | str) -> str:
    """What each process would be allowed, or why none would start."""
    rows = [("none", plan)] if isinstance(plan, str) else plan
    lines = [f"  {role:8}  {text}" for role, text in rows]
    return "\n".join(["\nPrivileges, if it were started here and now:", *lines])


def without_secrets(name: str, value: Any) -> Any:
    """What may be shown of a value. Of variables for the app only the names: people keep passwords there."""
    if name == "raw_env":
        return [f"{assignment.partition('=')[0]}={MASK}" for assignment in value]
    if name == "wsgi_app" and value is not None:
        # A module may be called `tokens`; what is secret stands in the call of a factory.
        app, parenthesis, arguments = value.partition("(")
        return app + parenthesis + masked(arguments)
    return masked(value)


def show(value: Any, kind: str = "") -> str:
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


def _short_flags(setting: Setting) -> str:
    """The short flag, the first long one, and the one that switches off."""
    short = [flag for flag in setting.flags if not flag.startswith("--")]
    long = [flag for flag in setting.flags if flag.startswith("--")]
    flags = ", ".join((*short, *long[:1], *setting.off_flags))
    return f"{flags} {setting.metavar}".rstrip()


def _described(setting: Setting) -> Iterator[str]:
    flags = ", ".join((*setting.flags, *setting.off_flags))
    yield ""
    yield f"  {flags} {setting.metavar}".rstrip() if flags else f"  {setting.name} (config file only)"
    paragraphs = [f"{setting.help}.", *setting.long_help.split("\n\n"), _facts(setting)]
    for paragraph in paragraphs:
        yield from textwrap.wrap(
            paragraph, _COLUMNS, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False
        )


def _facts(setting: Setting) -> str:
    facts = [f"Setting {setting.name}", f"default {show(setting.default, setting.kind)}"]
    if setting.env is not None:
        facts.append(f"environment {setting.env}")
    return ", ".join(facts) + "."
