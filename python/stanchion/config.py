"""Where settings come from: environment, config file, command lines; merged and checked by the table in Rust.

The order, lowest first: the table's defaults, environment variables, config file,
GUNICORN_CMD_ARGS, STANCHION_CMD_ARGS, command line. This module collects the layers and decides nothing about
values.
"""

import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

from stanchion import _stanchion, gunicorn, hooks, trust
from stanchion.effective import Effective, UsageError

# Looked for in the working directory, in this order, when no -c says otherwise.
DEFAULT_FILES = ("stanchion.conf.py", "gunicorn.conf.py")

# Command lines in the environment, the lowest first. Ours wins over the one that is there for gunicorn too.
FLAG_VARIABLES = ("GUNICORN_CMD_ARGS", "STANCHION_CMD_ARGS")


class Setting(NamedTuple):
    """One row of the table of settings (crates/stanchion-settings/src/row.rs)."""

    name: str
    section: str
    flags: Sequence[str]
    off_flags: Sequence[str]
    metavar: str
    env: str | None
    env_format: str | None
    kind: str
    range: Mapping[str, int | None] | None
    choices: Sequence[str] | None
    default: Any
    gunicorn: bool
    help: str
    long_help: str


def most_workers(workers: int | str) -> int:
    """Of a value of the setting: 8 of 8, and of a range such as 2..8."""
    return int(str(workers).rpartition("..")[2])


class Layer(NamedTuple):
    """Raw values from one place. `origin` is what people call the place."""

    origin: str
    values: Mapping[str, Any]


class ConfigFile(NamedTuple):
    """A config file's settings, hooks and objects, the errors that forbid its use, and warnings."""

    layer: Layer
    hooks: Mapping[str, hooks.Function]
    errors: Sequence[str]
    warnings: Sequence[str]
    objects: Mapping[str, Any]


@functools.cache
def schema() -> tuple[Setting, ...]:
    """Every setting, in the order in which people read about them."""
    rows = json.loads(_stanchion.settings_schema())
    return tuple(Setting(**row) for row in rows)


def environment_layers(environ: Mapping[str, str]) -> list[Layer]:
    """A layer for each variable that is set: WEB_CONCURRENCY, PORT, FORWARDED_ALLOW_IPS."""
    return [
        Layer(f"environment {setting.env}", {setting.name: setting.env_format.format(environ[setting.env])})
        for setting in schema()
        if setting.env is not None and setting.env_format is not None and setting.env in environ
    ]


def unread_variables(environ: Mapping[str, str]) -> list[str]:
    """A warning of those variables by which uvicorn takes its flags, if any is set."""
    names = sorted(name for name in environ if name.startswith("UVICORN_"))
    if not names:
        return []
    why = "environment: ignored, as uvicorn's variables are not read here"
    return [f"{why}: {', '.join(names)} (use STANCHION_CMD_ARGS)"]


def default_file() -> str | None:
    """The config file that is read when none was asked for."""
    return next((name for name in DEFAULT_FILES if os.path.isfile(name)), None)


def read_file(location: str) -> ConfigFile:
    """The settings and hooks in a config file.

    The file runs as Python. As in gunicorn, names that are neither (imports, helpers) are none of
    our business, unless they look like a slip. `location` is PATH, file:PATH or python:MODULE.
    """
    held = _run_config(location)
    objects, shown = objects_of(held)
    layer = Layer(f"config file {location}", settings_among(held) | shown)
    functions, complaints = hooks.find(held)
    refusals, ignored = gunicorn.sort_out(held)
    warnings = [f"{location}: {slip}" for slip in _slips(held)]
    if ignored:
        warnings.append(f"{location}: no effect in stanchion, ignored: {', '.join(ignored)}")
    errors = [f"config file {location}: {one}" for one in complaints + refusals]
    return ConfigFile(layer, functions, errors, warnings, objects)


def settings_among(held: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that these variables of a config file give, by their own names and by gunicorn's."""
    names = {setting.name for setting in schema()} - {"config"}
    return {name: value for name, value in held.items() if name in names} | gunicorn.translated(held)


# Settings that gunicorn takes as objects of Python's, too.
_OBJECTS: Mapping[str, type] = MappingProxyType({"logconfig_dict": dict, "logger_class": type})


def objects_of(held: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings among these that are objects of Python's, and the texts that stand for them."""
    objects = {name: held[name] for name, kind in _OBJECTS.items() if isinstance(held.get(name), kind)}
    return objects, {name: _as_text(value) for name, value in objects.items()}


def _as_text(value: Any) -> str:
    """A text for processes that need to know only that there is such an object, and for people."""
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return json.dumps(value, default=repr) if value else ""


def _slips(held: Mapping[str, Any]) -> Iterator[str]:
    """Names without a meaning that resemble a setting or hook which the file lacks, or spell its flag."""
    functions = {name: name for name in hooks.NAMES}
    values = {
        flag.removeprefix("--").replace("-", "_"): setting.name
        for setting in schema()
        for flag in setting.flags
        if flag.startswith("--")
    }
    values |= {name: name for name in (*(setting.name for setting in schema()), *gunicorn.NAMES)}
    for name, value in held.items():
        if name.startswith("_") or isinstance(value, type | ModuleType) or name in hooks.NAMES:
            continue
        meant = functions if callable(value) else values
        if meant.get(name) == name:
            continue
        # Imported here, so that a file with names of settings only does not bring it into the process's memory.
        from difflib import get_close_matches

        near = get_close_matches(name, meant, n=1, cutoff=0.8)
        # A helper's name may well be near that of the setting which is made with it.
        if near and meant[near[0]] not in held:
            yield f"{name} is no setting and no hook; did you mean {meant[near[0]]}?"


def resolve(
    layers: Sequence[Layer],
    warnings: Sequence[str] = (),
    functions: Mapping[str, hooks.Function] | None = None,
    known: Sequence[str] = (),
    objects: Mapping[str, Any] | None = None,
) -> Effective:
    """Merge layers, lowest first. UsageError with one line for each bad value, after the errors that are known."""
    errors = list(known)
    plain = [_plain_layer(layer, errors) for layer in layers]
    answer = json.loads(_stanchion.settings_resolve(json.dumps(plain)))
    errors += answer["errors"]
    errors += [f"setting `{one['name']}` from {one['origin']}: there is no such setting" for one in answer["unknown"]]
    values = {setting.name: answer["values"][setting.name]["value"] for setting in schema()}
    origins = {name: answer["values"][name]["origin"] for name in values}
    if values["chdir"] is not None and not os.path.isdir(values["chdir"]):
        errors.append(f"setting `chdir` from {origins['chdir']}: there is no directory {values['chdir']!r}")
    if values["paste"] is not None:
        # As in gunicorn from where the server is started, not from chdir.
        values["paste"] = os.path.abspath(values["paste"])
        file = values["paste"].partition("#")[0]
        if not os.path.isfile(file):
            errors.append(f"setting `paste` from {origins['paste']}: there is no file {file!r}")
        elif origins["paste"] == "command line" and origins["logconfig"] == "default" and _sets_up_logging(file):
            # As in gunicorn, which looks at the command line's alone.
            values["logconfig"], origins["logconfig"] = file, "the file of `paste`"
    if errors:
        raise UsageError(*errors)
    given = {name: value for name, value in values.items() if origins[name] != "default"}
    # A layer above the file may have set another one.
    held = {name: one for name, one in (objects or {}).items() if values[name] == _as_text(one)}
    return Effective(values, origins, json.dumps(given), (*warnings, *answer["warnings"]), functions or {}, held)


def _sets_up_logging(path: str) -> bool:
    """Whether an ini file has the section that logging.config.fileConfig begins with."""
    # An unreadable file is reported later, when the app is loaded from it.
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return any(line.startswith("[loggers]") for line in file)
    return False


def _run_config(location: str) -> dict[str, Any]:
    """The variables of a config file after it ran."""
    if location.startswith("python:"):
        module = location.removeprefix("python:")
        return _run(location, lambda: vars(_import_anew(module)))
    path = location.removeprefix("file:")
    if path == os.devnull:  # Scripts name it so that no file is read, not even the one in the working directory.
        return {}
    if not os.path.isfile(path):
        raise UsageError(f"there is no config file {path!r}")
    _refuse(location, trust.obstacle(path))
    return _run(location, lambda: _exec_file(path))


def _refuse(location: str, obstacle: str | None) -> None:
    if obstacle is not None:
        raise UsageError(
            f"the config file {location!r} is not run as root: {obstacle}. Give both to root (chown root, chmod go-w), "
            "or start the server as the user that it is to run as"
        )


def _run(location: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return dict(read())
    except UsageError:
        raise
    # A file that calls sys.exit() is as broken as one that raises.
    except (Exception, SystemExit) as error:
        from stanchion.tracebacks import user_traceback

        reason = f"the config file {location!r} raised an error: correct what the traceback shows"
        if isinstance(error, trust.NotRoots):
            reason += f": {error}"
        elif isinstance(error, ImportError) and not trust.may_import_from(os.getcwd()):
            reason += f"; root imports nothing from here, as {trust.obstacle(os.getcwd())}"
        raise UsageError(reason, traceback=user_traceback(error)) from error


def _import_anew(name: str) -> ModuleType:
    """Import the module from its file as it is now: at a reload an older one is loaded. Root imports only root's."""
    importlib.invalidate_caches()
    sys.modules.pop(name, None)
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        # To find a module imports the packages that it is in, so these are looked at before it.
        spec = importlib.util.find_spec(".".join(parts[:end]))
        _refuse(f"python:{name}", None if spec is None else trust.obstacle_of_module(spec))
    return importlib.import_module(name)


def _exec_file(path: str) -> dict[str, Any]:
    # The name is gunicorn's: a file may look itself up in sys.modules, as dataclasses do.
    name = "__config__"
    # Named outright, since the file may have any suffix.
    loader = importlib.machinery.SourceFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None, "a spec is always made from a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    importlib.invalidate_caches()
    # From its source: a cached compilation passes for new if the file changed within a second.
    exec(loader.source_to_code(loader.get_data(path), path), vars(module))
    return vars(module)


def _plain_layer(layer: Layer, errors: list[str]) -> dict[str, Any]:
    """The layer in JSON's terms. A value that has none is an error here and left out."""
    values = {}
    for name, value in layer.values.items():
        try:
            values[name] = _plain(value)
        except TypeError:
            errors.append(
                f"setting `{name}` from {layer.origin}: expected a number, a text or a list, "
                f"got an object of type {type(value).__name__}"
            )
    return {"origin": layer.origin, "values": values}


def _plain(value: object) -> object:
    match value:
        case bool() | int() | str() | None:
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | os.PathLike():
            return os.fsdecode(value)
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case dict():
            # JSON knows texts as keys; any other would become one silently.
            if all(isinstance(key, str) for key in value):
                return {key: _plain(item) for key, item in value.items()}
    raise TypeError(value)
