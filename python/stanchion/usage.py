"""The words of the command line: help and the table of `stanchion check`."""

import platform
import sys
import textwrap
from collections.abc import Collection, Iterator
from importlib import metadata
from itertools import groupby
from typing import Any

from stanchion import __version__
from stanchion.commands import CHECK_FLAGS, COMMANDS
from stanchion.config import Setting, schema
from stanchion.effective import Effective
from stanchion.output import MASK, masked
from stanchion.output import written as show

_COLUMNS = 79

# Beyond this a flag pushes its help aside rather than every other one.
_FLAGS_COLUMNS_MAX = 32

# Beyond this a value pushes its origin aside rather than every other one.
_VALUE_COLUMNS_MAX = 40

# The settings that most people need, in this order; the others are on the page of `serve`.
_USUAL = ("bind", "workers", "threads", "timeout", "config", "chdir", "user", "accesslog", "loglevel", "reload")

_APP = """\
APP is MODULE:NAME, MODULE:FACTORY() or MODULE (`application`, else `app`)."""

_HEAD = f"""\
Usage: stanchion [serve] [FLAGS] [APP]    serve a WSGI or ASGI app
       stanchion check [FLAGS] [APP]      show the settings in effect

{_APP}
Flags are gunicorn's where gunicorn has them."""

_OTHER = (
    ("-h", "One line for each flag"),
    ("--help [FLAG]", "Everything about all flags, or about one"),
    ("--dry-run", "Show the settings in effect"),
    ("-v, --version", "Print the version"),
)

_MORE = """\
`stanchion serve -h` has a line for each flag, `stanchion serve --help` tells
everything, `stanchion help WHAT` explains one command, flag or setting."""

_TAIL = """\
Order, the last wins: defaults, environment variables, config file,
GUNICORN_CMD_ARGS, STANCHION_CMD_ARGS, command line. A list is replaced, not
extended.

Exit codes: 0 stopped as asked; 1 an error of the server itself; 2 wrong usage
or settings; 3 a worker failed to boot; 4 the app could not be loaded; 5 an
address could not be bound."""


def first_page() -> str:
    """The commands, the flags that most people need, and where the rest is."""
    rows = [(f"{name} {rest}", words) for name, rest, words in COMMANDS]
    known = {setting.name: setting for setting in schema()}
    flags = [(_short_flags(known[name]), known[name].help) for name in _USUAL]
    width = max(len(left) for left, _ in rows + flags)
    lines = ["Usage: stanchion COMMAND ...\n"]
    lines += [f"  {left:{width}}  {words}" for left, words in rows]
    lines += [f"\n{_APP}\n\nFlags that most people need:"]
    lines += [f"  {left:{width}}  {words}" for left, words in (*flags, ("-v, --version", "Print the version"))]
    return "\n".join((*lines, f"\n{_MORE}"))


def version_page() -> str:
    """The version by itself, for scripts, and then what a report of a fault should say."""
    loops = {name: _version_of(name) for name in ("uvloop", "gevent")}
    found = ", ".join(f"{name} {version or 'not installed'}" for name, version in loops.items())
    system, machine, release = platform.system(), platform.machine(), platform.release()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        python += " without the GIL"
    return f"""\
stanchion {__version__}
runs on: {python}, {system} {release}, {machine}
serves: WSGI, ASGI, WebSockets, HTTP/1.1, HTTP/2, TLS 1.2, TLS 1.3
event loops: asyncio, {found}"""


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def check_page() -> str:
    """The help of `check`, with the flags that `serve` does not have."""
    width = max(len(flag) for flag, _ in CHECK_FLAGS)
    lines = ["Usage: stanchion check [FLAGS] [APP]\n", "Takes the flags of `stanchion serve`, and:"]
    lines += [f"  {flag:{width}}  {words}" for flag, words in CHECK_FLAGS]
    tail = "Exit codes: 0 nothing is wrong; 2 wrong usage or settings; 4 with --load: the\napp could not be loaded."
    return "\n".join((*lines, "", tail))


def about(setting: Setting) -> str:
    """Everything about one setting."""
    return textwrap.dedent("\n".join(_described(setting)).lstrip("\n"))


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
    lines.extend(("\nOther:", *(f"  {flags:15}{text}" for flags, text in _OTHER)))
    lines.extend(("", check_page(), "", _TAIL))
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
    """The privileges of each process, or the reason why none would start."""
    rows = [("none", plan)] if isinstance(plan, str) else plan
    lines = [f"  {role:8}  {text}" for role, text in rows]
    return "\n".join(["\nPrivileges, if it were started here and now:", *lines])


def without_secrets(name: str, value: Any) -> Any:
    """The value without its secrets. Variables for the app keep only their names: people have passwords in them."""
    if name == "raw_env":
        return [f"{assignment.partition('=')[0]}={MASK}" for assignment in value]
    if name == "wsgi_app" and value is not None:
        # A module may be called `tokens`; what is secret stands in the call of a factory.
        app, parenthesis, arguments = value.partition("(")
        return app + parenthesis + masked(arguments)
    return masked(value)


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
