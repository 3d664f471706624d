"""The command line: `stanchion serve`, `check`, `ctl`, `top`, `doctor`, `plan`, `fleet`, `lab`, `help`, `completion`.

This module finds the command. Each command imports its own modules: else each process of a server would have all of
them in its memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial

from stanchion import reading
from stanchion.commands import NAMES
from stanchion.configuration import Configuration
from stanchion.effective import EXIT_USAGE, Answered, UsageError
from stanchion.loader import AppHost
from stanchion.serving import leave_threads_behind, serve, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# The other exit codes come from the server; usage.py tells them all.
EXIT_OK = 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. `argv` is without the program's name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        command = _command(arguments)
        return command(arguments)
    except Answered:
        return EXIT_OK
    except UsageError as error:
        from stanchion.output import complain_of

        complain_of(error)
        return EXIT_USAGE


def _command(arguments: list[str]) -> Callable[[list[str]], int]:
    """The command that is meant, taken off the arguments: `stanchion app:app` means `serve`."""
    commands = dict(
        zip(NAMES, (_serve, _check, _ctl, _top, _doctor, _plan, _fleet, _lab, _help, _completion), strict=True)
    )
    if arguments and arguments[0] in commands:
        return commands[arguments.pop(0)]
    return _help if arguments in (["-h"], ["--help"]) else _serve


def _serve(arguments: list[str]) -> int:
    if "--help" in arguments[:-1]:
        # The words after --help are what to explain, and no flag that wants a value.
        return _help(arguments[arguments.index("--help") + 1 :])
    if "--dry-run" in arguments:
        arguments.remove("--dry-run")
        return _check(arguments)
    configuration = Configuration(partial(reading.read, arguments))
    return serve(configuration, AppHost(configuration))


def _check(arguments: list[str]) -> int:
    from stanchion import check, command_line

    options = command_line.parse_for_check(arguments)
    configuration = Configuration(partial(command_line.checked, options))
    warn(configuration.effective.warnings)
    check.show(configuration.effective, as_json=options.json, changed=options.changed)
    code = check.credentials(configuration.effective)
    if code != EXIT_OK or not options.load:
        return code
    code = check.load(configuration, AppHost(configuration))
    leave_threads_behind(code)
    return code


def _ctl(arguments: list[str]) -> int:
    from stanchion import command_line, ctl

    return ctl.run(arguments, partial(command_line.address_of, "control"))


def _top(arguments: list[str]) -> int:
    from stanchion import command_line
    from stanchion.top import command

    return command.run(arguments, command_line.address_of, command_line.settings_in)


def _doctor(arguments: list[str]) -> int:
    from stanchion import command_line, doctor

    return doctor.run(arguments, command_line.settings_in)


def _plan(arguments: list[str]) -> int:
    from stanchion import plan

    return plan.run(arguments)


def _fleet(arguments: list[str]) -> int:
    from stanchion import command_line, fleet

    return fleet.run(arguments, command_line.without_app)


def _lab(arguments: list[str]) -> NoReturn:
    """Become the lab, another program, of which this one knows only the name."""
    from importlib.util import find_spec

    if find_spec("stanchion_lab") is None:
        raise UsageError(
            "the lab is a package of its own, which this Python does not have: "
            "`pip install ./lab` in a checkout of stanchion, with Python 3.11 or newer"
        )
    # -P: what lies in the working directory must not stand in for a module of the lab.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "stanchion_lab", *arguments])


def _help(arguments: list[str]) -> int:
    from stanchion import guide

    match arguments:
        case ["help" | "completion"]:
            return guide.run([])  # which tells all that there is to know of them
        case [command] if command in NAMES:
            return main([command, "--help"])
    return guide.run(arguments)


def _completion(arguments: list[str]) -> int:
    from stanchion import guide

    return guide.completion(arguments)
