"""A program beside stanchion: a server to migrate from, a process manager, or a proxy in front of it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from support import processes
from support.address import Address
from support.patience import PATIENCE_S, eventually


@contextlib.contextmanager
def running(
    command: Sequence[str], home: Path, ready: Callable[[], bool], environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run it in its directory until the block ends; then TERM, a bounded wait, and KILL for whatever is left."""
    output = home / "output"
    with output.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=home,
            env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "HOME": str(home), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        eventually(lambda: ended(process, output) or ready(), f"{command[0]} is ready", within_s=2 * PATIENCE_S)
        yield process
    finally:
        print(f"--- output of {command[0]}\n{output.read_text(errors='replace')}")
        _end_session(process)


def ended(process: subprocess.Popen[bytes], output: Path) -> bool:
    assert process.poll() is None, f"it ended with {process.returncode}: {output.read_text(errors='replace')}"
    return False


def accepts(address: Address) -> Callable[[], bool]:
    """A probe: whether a process listens at the address."""

    def probe() -> bool:
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
            address.connect().close()
            return True
        return False

    return probe


def end(process: subprocess.Popen[bytes]) -> None:
    """TERM, and a bounded wait; KILL for what stays, which is an error."""
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def _end_session(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
    for left in processes.of_session(process.pid):
        processes.kill(left)
        processes.gone(left.pid)
    process.wait(PATIENCE_S)
