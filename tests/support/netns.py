"""A network namespace of one's own: kernel limits can be set in it without touching the machine's."""

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from support import missing

T = TypeVar("T")

CLONE_NEWNET = 0x40000000
"""The number from linux/sched.h; os.setns came with Python 3.12."""


def inside(namespace: Path, function: Callable[[], T]) -> T:
    """Call a function in a thread that has entered; sockets made there belong to the namespace."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def enter_and_call() -> None:
        try:
            _enter(namespace)
            answers.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=enter_and_call)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return answers[0]


def _enter(namespace: Path) -> None:
    """setns(2) moves the calling thread only; threads it starts are inside too."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(namespace, os.O_RDONLY)
    try:
        if libc.setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(fd)


class Namespace:
    """Made with `ip netns`, which needs root; the name is unique, so that tests may run beside each other."""

    def __init__(self) -> None:
        self.name = f"stanchion-{os.getpid()}-{time.monotonic_ns()}"
        self._ip("netns", "add", self.name)
        try:
            self._ip("-n", self.name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError:
            self.remove()
            raise

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    @property
    def prefix(self) -> list[str]:
        """Words before a command that is to run inside; ip becomes that command by exec, so the pid stays."""
        return ["ip", "netns", "exec", self.name]

    def sysctl(self, name: str, value: int) -> None:
        """Set for this namespace alone; written in a process of it, for /proc/sys/net shows the reader's own."""
        subprocess.run([*self.prefix, "sysctl", "-qw", f"{name}={value}"], check=True, capture_output=True)

    def run(self, function: Callable[[], T]) -> T:
        return inside(Path("/run/netns") / self.name, function)

    def remove(self) -> None:
        self._ip("netns", "del", self.name)


def unavailable() -> str:
    """Why there can be no namespace here, or "" if there can."""
    if os.geteuid() != 0:
        return missing.allowed("needs root to make a network namespace")
    try:
        Namespace().remove()
    except (OSError, subprocess.CalledProcessError) as error:
        return missing.allowed(f"cannot make a network namespace: {getattr(error, 'stderr', b'') or error}")
    return ""
