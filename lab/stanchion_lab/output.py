"""Text for people, who may pipe it into head(1), or read it on a terminal that obeys control characters."""

import os
import sys


def show(text: str) -> None:
    """Print it, line by line, with nothing else in it that a terminal would obey."""
    try:
        print("\n".join(map(_printable, text.split("\n"))), flush=True)
    except BrokenPipeError:
        # The reader may close the pipe before the end. Python flushes the rest at exit: let that go elsewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _printable(line: str) -> str:
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in line
    )
