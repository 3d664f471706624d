"""What is printed for people, who may read it through head."""

import os
import sys


def show(text: str) -> None:
    """Print it; whoever reads it may have seen enough before the end."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # What Python flushes at exit must go elsewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
