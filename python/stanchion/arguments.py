"""The arguments of the commands that are no server, such as `ctl`, `top` and `doctor`."""

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn

from stanchion.effective import UsageError


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are UsageErrors, which begin with the command and end with the hint."""

    def __init__(self, command: str, hint: str = "") -> None:
        super().__init__(prog=f"stanchion {command}", add_help=False, allow_abbrev=False)
        self._command = command
        self._hint = hint

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self._command}: {message}{self._hint}")


def ask_for_help(arguments: Sequence[str]) -> bool:
    return any(word in ("-h", "--help") for word in arguments)


def seconds(most: float) -> Callable[[str], float]:
    """The type of an argument that is a time of up to so many seconds."""

    # argparse names this function in its complaint about a text that is no number.
    def _seconds(text: str) -> float:
        given = float(text)
        # Written so that NaN is refused too.
        if not 0.0 < given <= most:
            raise argparse.ArgumentTypeError(f"expected seconds between 0 and {most:.0f}, got {text!r}")
        return given

    return _seconds
