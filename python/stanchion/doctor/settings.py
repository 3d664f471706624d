"""The settings of a running stanchion, as far as its command line, its environment and its config file show them.

The file is read and not run: it is a program of its user, and the doctor may be root. config.py, with which the server
reads them, has the meaning of names and variables, and the order of places.
"""

import ast
import os
import shlex
import stat
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stanchion import config, gunicorn
from stanchion.config import Layer
from stanchion.doctor import processes
from stanchion.effective import UsageError

NAMES = (
    "admin",
    "control",
    "drain_delay",
    "graceful_timeout",
    "interface",
    "loop",
    "max_connections",
    "queue_timeout",
    "session_grace",
    "timeout",
    "worker_concurrency",
    "worker_sessions",
    "workers",
    "ws_ping_interval",
)
"""The settings that the doctor asks for."""

_OF_CLASS = frozenset(name for meaning in gunicorn.WORKER_CLASSES.values() for name in meaning)

_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    name: (
        name,
        *(one.name for one in gunicorn.SYNONYMS if one.setting == name),
        *(("worker_class",) if name in _OF_CLASS else ()),
    )
    for name in NAMES
}
"""By which names a config file may give each, the one that wins first (`gunicorn.translated`)."""

FILE_BYTES_MAX = 64 * 1024
"""The doctor does not read a longer config file."""

Parse = Callable[[Sequence[str], str], Mapping[str, Any]]
"""(words of a command line, its name in messages) -> settings by name. UsageError if they are wrong."""


@dataclass(frozen=True)
class Settings:
    values: Mapping[str, Any]
    sources: Mapping[str, str]
    """How each value is known, for people."""
    assumed: frozenset[str]
    """The settings that the config file may compute when it runs. Their value here is the default."""


def by_default(why: str) -> Settings:
    """The defaults, for a server whose settings are not known."""
    values = config.resolve([]).values
    sources = dict.fromkeys(NAMES, f"the default, assumed: {why}")
    return Settings({name: values[name] for name in NAMES}, sources, frozenset(NAMES))


def of(pid: int, parse: Parse, proc: Path = Path("/proc")) -> Settings | None:
    """None if it cannot be known how the process was started."""
    home = proc / str(pid)
    words = (processes.read(home / "cmdline") or "").split("\0")
    environ = dict(text.split("=", 1) for text in (processes.read(home / "environ") or "").split("\0") if "=" in text)
    try:
        lines = {
            name: parse(shlex.split(environ[name]), f"its {name}")
            for name in config.FLAG_VARIABLES
            if environ.get(name)
        }
        lines["the command line"] = parse(_arguments(words), "its command line")
        location = next((line["config"] for line in reversed(lines.values()) if line.get("config")), None)
        file = _of_file(home, location, any("chdir" in line for line in lines.values()))
        below = [
            Layer(f"{layer.origin} of process {pid}", _picked(layer.values))
            for layer in config.environment_layers(environ)
        ]
        above = [Layer(f"{place} of process {pid}", _picked(line)) for place, line in lines.items()]
        effective = config.resolve([*below, Layer(f"{file.name}, as it reads now", file.values), *above])
    except (UsageError, ValueError, OSError):
        return None
    assumed = file.opaque - {name for layer in above for name in layer.values}
    sources = {name: _source(effective.origins[name]) for name in NAMES}
    sources |= {name: f"{sources[name]}, assumed: {file.why}" for name in assumed}
    return Settings({name: effective.values[name] for name in NAMES}, sources, frozenset(assumed))


def _source(origin: str) -> str:
    return "the default" if origin == "default" else origin


def _arguments(words: Sequence[str]) -> list[str]:
    """Without the program: `…/stanchion serve …`, `python -m stanchion serve …`."""
    for number, word in enumerate(words):
        if os.path.basename(word) == "stanchion":
            # It ends with a NUL, so there is one more that is empty.
            arguments = list(words[number + 1 : -1])
            return arguments[1:] if arguments[:1] == ["serve"] else arguments
    raise ValueError("not a stanchion")


def _picked(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in NAMES}


@dataclass(frozen=True)
class _File:
    """The settings in a config file that can be read without running it."""

    name: str
    values: Mapping[str, Any]
    opaque: frozenset[str]
    """The names that it may set in a way that the doctor cannot read."""
    why: str


def _of_file(home: Path, location: str | None, has_moved: bool) -> _File:
    path = (location or "").removeprefix("file:")
    # Where a process is we see; but not where it was before it changed its directory.
    if path.startswith("python:") or (has_moved and not os.path.isabs(path)):
        return _File(path, {}, frozenset(NAMES), f"{path or 'a config file'} may say otherwise, and was not found")
    if not path:
        path = next((name for name in config.DEFAULT_FILES if (home / "cwd" / name).is_file()), "")
        if not path:
            return _File("", {}, frozenset(), "")
    if path == os.devnull:  # as in config.py: no file is to be read
        return _File(path, {}, frozenset(), "")
    # As the process sees it, wherever its root is.
    source = _text(home / "root" / path.lstrip("/") if os.path.isabs(path) else home / "cwd" / path)
    if source is None:
        return _File(path, {}, frozenset(NAMES), f"{path} may say otherwise, and cannot be read")
    values, opaque = plain_values(source)
    return _File(path, values, frozenset(opaque), f"only running {path} would tell")


def _text(path: Path) -> bytes | None:
    """The text of a plain file that is not too long. Reading another kind of file might block."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError:
        return None
    return content if len(content) <= FILE_BYTES_MAX else None


def plain_values(source: bytes) -> tuple[dict[str, Any], set[str]]:
    """The settings that a config file gives as plain values, and the names that it may compute when it runs."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}, set(NAMES)
    watched = {spelling for spellings in _SPELLINGS.values() for spelling in spellings}
    held: dict[str, Any] = {}
    plain: Counter[str] = Counter()
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in watched:
                with suppress(ValueError, TypeError, RecursionError, MemoryError):
                    held[name] = ast.literal_eval(value)
                    plain[name] += 1
    bound: Counter[str] = Counter()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                bound[name] += 1
            case ast.alias(name="*"):
                bound.update(watched)
            case ast.alias(name=name, asname=other):
                bound[other or name] += 1
    known = {name: value for name, value in held.items() if bound[name] == plain[name]}
    # If a setting has several names, the first that the file has decides.
    deciding = {name: next(filter(bound.get, spellings), None) for name, spellings in _SPELLINGS.items()}
    opaque = {name for name, spelling in deciding.items() if spelling is not None and spelling not in known}
    values = _picked(config.settings_among(known))
    return {name: value for name, value in values.items() if name not in opaque}, opaque
