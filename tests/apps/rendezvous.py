"""The apps' half of tests/support/gate.py."""

import os


def announce(line: str, gate: str = "GATE") -> None:
    """Tell the test something; one write below PIPE_BUF is never mixed with another's (pipe(7))."""
    with open(os.path.join(os.environ[gate], "announcements"), "wb", buffering=0) as fifo:
        fifo.write(line.encode() + b"\n")


def wait_for_pass(gate: str = "GATE") -> None:
    with open(os.path.join(os.environ[gate], "passes"), "rb", buffering=0) as fifo:
        fifo.read(1)
