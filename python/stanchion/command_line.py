"""The command line as settings: flags are made from the table of settings in Rust; flags of gunicorn that have no
meaning here get an explanation.

Only a process that reads settings has this module in its memory. The master of a server lets another process do it
(reading.py).
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from stanchion import config, gunicorn
from stanchion.commands import CHECK_FLAGS, NAMES
from stanchion.config import Layer
from stanchion.effective import Answered, Effective, UsageError, import_first
from stanchion.hooks import Function
from stanchion.serving import warn


class Layers(NamedTuple):
    """The settings of each place, the lowest first; warnings; hooks; errors found so far; and objects."""

    layers: Sequence[Layer]
    warnings: Sequence[str]
    hooks: Mapping[str, Function]
    errors: Sequence[str]
    objects: Mapping[str, Any]


def address_of(name: str, location: str | None) -> str | None:
    """The setting of this name, an address, as `serve` would have it here, given a config file or None. Reads only this
    setting: a mistake in another must not lock the operator out.
    """
    from_env: dict[str, Any] = {}
    for place in config.FLAG_VARIABLES:
        from_env |= _with_mistakes(os.environ.get(place, ""), place, (name, "chdir", "config"))
    given = from_env.get(name)
    directory = from_env.get("chdir")
    import_first(os.getcwd())
    location = location or from_env.get("config") or config.default_file()
    if given is None and location is not None:
        values = config.read_file(location).layer.values
        given = values.get(name)
        directory = directory or values.get("chdir")
    if not isinstance(given, str | None):
        raise UsageError(f"the `{name}` of {location} is no text, such as unix:/run/stanchion.{name}")
    is_path = given is not None and given.startswith("unix:") and not given.startswith("unix:@")
    if given is not None and is_path and isinstance(directory, str):
        # The server is there when it opens the socket.
        given = f"unix:{os.path.join(directory, given.removeprefix('unix:'))}"
    return given


def _with_mistakes(text: str, place: str, names: Sequence[str]) -> dict[str, Any]:
    """The settings of these names among the flags in a variable, whatever is wrong with the others."""
    parser = _Parser(place)
    for setting in config.schema():
        if setting.name in names:
            _add_flags(parser, setting)
    try:
        options, _ = parser.parse_known_args(_split(text, place))
    except UsageError as error:
        warn(f"not read: {reason}" for reason in error.reasons)
        return {}
    return _settings_of(options)


def _answer(options: argparse.Namespace, command: str) -> None:
    """Print what the arguments ask for, if that is words only; then Answered."""
    if not _asks(options):
        return
    from stanchion import usage
    from stanchion.output import show

    if options.help is not None:
        page = usage.check_page if command == "check" else usage.full_help
        show(page() if options.help == "full" else usage.short_help())
    else:
        show(usage.version_page())
    raise Answered


def _asks(options: argparse.Namespace) -> bool:
    return options.help is not None or options.version


def layers_of_program(
    arguments: Sequence[str], init: Callable[[argparse.ArgumentParser, argparse.Namespace, list[str]], Any]
) -> Layers:
    """The settings that `serve` would read, for a program that reads its command line as `serve` does. `init` may add
    settings below these; it gets all settings, with None for those that are not on the command line, and the app.
    """
    options = _parse(arguments, "command line")
    _answer(options, "serve")
    given = _settings_of(options)
    every = argparse.Namespace(**(dict.fromkeys(setting.name for setting in config.schema()) | given))
    added = init(_Parser("command line"), every, [given["wsgi_app"]] if "wsgi_app" in given else [])
    return _layers(options, added or {})


def servable(arguments: Sequence[str]) -> Effective:
    """The settings of `serve` with these arguments, the environment and the config file."""
    options = _parse(arguments, "command line")
    _answer(options, "serve")
    return _servable(options)


def servable_without_file(arguments: Sequence[str]) -> Effective | None:
    """The same, or None if there is a config file, or if the arguments ask for help or the version."""
    options = _parse(arguments, "command line")
    if _asks(options) or _location(_asked(options)) is not None or config.default_file() is not None:
        return None
    return _servable(options)


def parse_for_check(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments of `check`. Answered if they ask for words only."""
    options = _parse(arguments, "command line", for_check=True)
    _answer(options, "check")
    return options


def checked(options: argparse.Namespace) -> Effective:
    """The settings that `check` shows for these arguments."""
    return (_servable if options.load else _effective)(options)


def without_app(arguments: Sequence[str]) -> Effective:
    """The settings that `serve` would have with these arguments and any app."""
    return _effective(_parse(arguments, "command line"))


def settings_in(arguments: Sequence[str], place: str) -> dict[str, Any]:
    """The settings that these flags give."""
    return _settings_of(_parse(arguments, place))


def _effective(options: argparse.Namespace) -> Effective:
    """Every layer, merged and checked."""
    return config.resolve(*_layers(options))


def _layers(options: argparse.Namespace, of_program: Mapping[str, Any] = MappingProxyType({})) -> Layers:
    """The settings of each place, as `config.resolve` takes them."""
    asked = _asked(options)
    # A config file imports what lies beside it, as it may in gunicorn.
    import_first(os.getcwd())
    layers = [*config.environment_layers(os.environ), Layer("the program", of_program)]
    warnings = config.unread_variables(os.environ)
    location = _location(asked)
    if location is None:
        location = config.default_file()
        if location is not None:
            layers.append(Layer("working directory", {"config": location}))
    functions: Mapping[str, Function] = {}
    objects: Mapping[str, Any] = {}
    errors: Sequence[str] = ()
    if location is not None:
        file = config.read_file(location)
        layers.append(file.layer)
        functions = file.hooks
        objects = file.objects
        errors = file.errors
        warnings += file.warnings
    for place, parsed in asked.items():
        if parsed.ignored:
            warnings.append(f"{place}: no effect in stanchion, ignored: {', '.join(parsed.ignored)}")
        layers.append(Layer(place, _settings_of(parsed)))
    return Layers(layers, warnings, functions, errors, objects)


def _servable(options: argparse.Namespace) -> Effective:
    """The same; UsageError if no setting names an app."""
    effective = _effective(options)
    if effective.values["wsgi_app"] is None and effective.values["paste"] is None:
        raise UsageError("no app to serve: name it, as in `stanchion serve module:app`")
    return effective


def _location(asked: Mapping[str, argparse.Namespace]) -> str | None:
    """The config file that is asked for."""
    location = None
    for parsed in asked.values():
        location = getattr(parsed, "config", None) or location
    return location


def _asked(options: argparse.Namespace) -> dict[str, argparse.Namespace]:
    """All flags that were given, by the place of each, the lowest first."""
    return {**_from_environment(), "command line": options}


def _from_environment() -> dict[str, argparse.Namespace]:
    """The flags in each of the variables that hold some, by its name, the lowest first."""
    return {
        name: _parse(_split(os.environ[name], name), name) for name in config.FLAG_VARIABLES if os.environ.get(name)
    }


def _split(text: str, place: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{place}: {error}") from error


def _settings_of(options: argparse.Namespace) -> dict[str, Any]:
    names = {setting.name for setting in config.schema()}
    return {name: value for name, value in vars(options).items() if name in names}


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are UsageErrors that name the place of the arguments."""

    def __init__(self, place: str) -> None:
        # A formatter is made for each flag, and without a width each asks `shutil` for the terminal's.
        formatter = partial(argparse.HelpFormatter, width=79)
        super().__init__(prog="stanchion", add_help=False, allow_abbrev=False, formatter_class=formatter)
        self.place = place

    def error(self, message: str) -> NoReturn:
        flags, _, complaint = message.removeprefix("argument ").partition(": ")
        if complaint == "expected one argument":
            message = _without_value(flags)
        raise UsageError(f"{self.place}: {message}")


class _ForeignFlag(argparse.Action):
    """A flag of gunicorn that has no meaning here: noted if harmless, else refused."""

    def __init__(self, option_strings: Sequence[str], dest: str, foreign: gunicorn.Foreign) -> None:
        super().__init__(option_strings, dest, nargs=None if foreign.takes_value else 0, default=argparse.SUPPRESS)
        self.foreign = foreign

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if self.foreign.is_honoured(values if self.foreign.takes_value else True):
            if self.foreign.name == "worker_class":
                namespace.of_class = gunicorn.meaning_of_class(values)
            return
        if self.foreign.refusal is not None:
            given = f"{option_string} {values}" if self.foreign.takes_value else str(option_string)
            parser.error(gunicorn.refused(given, self.foreign))
        namespace.ignored.append(self.foreign.ignored_as(str(option_string)))


def _parse(arguments: Sequence[str], place: str, for_check: bool = False) -> argparse.Namespace:
    """Flags to raw values under the names of settings; those not given are absent."""
    parser = _Parser(place)
    parser.set_defaults(ignored=[], of_class={}, help=None, version=False)
    parser.add_argument("wsgi_app", nargs="?", metavar="APP", default=argparse.SUPPRESS)
    parser.add_argument("-h", dest="help", action="store_const", const="short")
    parser.add_argument("--help", dest="help", action="store_const", const="full")
    parser.add_argument("-v", "--version", action="store_true")
    if for_check:
        for flag, _ in CHECK_FLAGS:
            parser.add_argument(flag, action="store_true")
    for setting in config.schema():
        _add_flags(parser, setting)
    for foreign in gunicorn.FOREIGN:
        if foreign.flags:
            parser.add_argument(*foreign.flags, dest=foreign.name, action=_ForeignFlag, foreign=foreign)
    # Intermixed: the app may stand before, between and after the flags.
    options, unknown = parser.parse_known_intermixed_args(arguments)
    if unknown:
        reasons = _unknown(unknown, getattr(options, "wsgi_app", None))
        raise UsageError(*(f"{place}: {reason}" for reason in reasons))
    # A flag of its own overrides a setting that follows from --worker-class, in whatever order they stand.
    return argparse.Namespace(**{**options.of_class, **vars(options)})


def _add_flags(parser: argparse.ArgumentParser, setting: config.Setting) -> None:
    common: dict[str, Any] = {"dest": setting.name, "default": argparse.SUPPRESS}
    if setting.kind == "bool":
        parser.add_argument(*setting.flags, action="store_const", const=True, **common)
        if setting.off_flags:
            parser.add_argument(*setting.off_flags, action="store_const", const=False, **common)
    elif setting.flags:
        action = "append" if setting.kind == "list" else "store"
        synonyms = [flag for one in gunicorn.SYNONYMS if one.setting == setting.name for flag in one.flags]
        parser.add_argument(*setting.flags, *synonyms, action=action, metavar=setting.metavar, **common)


def _without_value(flags: str) -> str:
    """The complaint about a flag without its value, with the values that there are."""
    setting = next(
        (setting for setting in config.schema() if not set(setting.flags).isdisjoint(flags.split("/"))), None
    )
    if setting is None:
        return f"{flags} needs a value"
    what = ", ".join(setting.choices) if setting.choices else f"{setting.metavar} ({setting.help})"
    return f"{flags} needs a value: {what}"


def _unknown(arguments: Sequence[str], app: str | None) -> list[str]:
    """The reasons why these arguments are refused, which no flag takes."""
    # Behind a flag that is unknown stands its value, which looks like an app.
    flags = [argument.partition("=")[0] for argument in arguments if argument.startswith("-")]
    return [_unknown_flag(flag) for flag in dict.fromkeys(flags)] or [_second_app(arguments[0], app)]


def _unknown_flag(flag: str) -> str:
    # Imported here, as all that only some commands need.
    from difflib import get_close_matches

    from stanchion import other_servers

    answer = other_servers.answer(flag)
    if answer is not None:
        return answer
    known = [known for setting in config.schema() for known in (*setting.flags, *setting.off_flags)]
    near = get_close_matches(flag, known, n=1)
    return f"there is no flag {flag}" + (f"; did you mean {near[0]}?" if near else "")


def _second_app(argument: str, app: str | None) -> str:
    from difflib import get_close_matches

    meant = get_close_matches(app or "", NAMES, n=1)
    if meant and app != argument:
        return f"there is no command {app!r}; did you mean {meant[0]}?"
    return f"one app at a time, not also {argument!r}"
