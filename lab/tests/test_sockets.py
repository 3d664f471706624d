"""The kernel's view of listening sockets is the one that the sockets were made with."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stanchion_lab.witness.sockets import Listening, listening


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def here(address: str) -> list[Listening]:
    return [one for one in listening() if one.address == address]


@pytest.mark.parametrize(
    ("family", "host", "shown"),
    [(socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "[::1]"), (socket.AF_INET6, "::", "[::]")],
)
def test_a_tcp_listener_is_seen_with_its_queue(
    stack: ExitStack, family: socket.AddressFamily, host: str, shown: str
) -> None:
    listener = stack.enter_context(socket.socket(family))
    listener.bind((host, 0))
    address = f"{shown}:{listener.getsockname()[1]}"
    assert here(address) == [], "it does not listen yet"
    listener.listen(7)
    assert here(address) == [Listening(address, waiting=0, backlog=7)]
    for _ in range(3):
        stack.enter_context(socket.create_connection((host, listener.getsockname()[1])))
    assert here(address) == [Listening(address, waiting=3, backlog=7)]


def test_unix_listeners_are_seen_by_path_and_by_abstract_name(stack: ExitStack, tmp_path: Path) -> None:
    # Paths of three lengths: an attribute is filled up to a multiple of four bytes.
    names = [str(tmp_path / name) for name in ("a", "ab", "abc")] + [f"\0lab-{time.monotonic_ns()}"]
    for backlog, name in enumerate(names):
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(name)
        listener.listen(backlog)
        stack.enter_context(socket.socket(socket.AF_UNIX)).connect(name)
        shown = name.replace("\0", "@")
        assert here(shown) == [Listening(shown, waiting=1, backlog=backlog)]


def test_many_listeners_are_seen_all(stack: ExitStack) -> None:
    """The answer is longer than a datagram of the kernel."""
    names = {f"lab-{time.monotonic_ns()}-{number:064}" for number in range(500)}
    for name in names:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(f"\0{name}")
        listener.listen()
    assert {one.address for one in listening()} >= {f"@{name}" for name in names}
