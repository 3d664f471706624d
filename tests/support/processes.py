"""The processes of one server, and how to be sure that none is left."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import psutil

from support.address import Address
from support.patience import PATIENCE_S, eventually


def of_session(session: int) -> list[psutil.Process]:
    """Every living process of a session (setsid(2)): also those whose parent was killed and that init has taken."""
    found = []
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == session:
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def reap_of_session(session: int) -> None:
    """Collect our own children of a session that have ended and that `subprocess` does not know of."""
    for child in psutil.Process().children():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(child.pid) == session and child.status() == psutil.STATUS_ZOMBIE:
                child.wait()


@contextlib.contextmanager
def standing_still(process: psutil.Process) -> Iterator[None]:
    """It is stopped, and has stopped, as long as the block lasts. A server may have killed it by then."""
    process.suspend()
    try:
        eventually(lambda: process.status() == psutil.STATUS_STOPPED, "the process stands still")
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def sleeps(pid: int) -> bool:
    """Whether all threads of a process wait for something, and have not run between two looks at them.

    A thread that only gets no core is not asleep: /proc shows it as running.
    """

    def threads() -> set[str]:
        return {(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()}

    before = threads()
    return before == threads() and all("\nState:\tS" in thread for thread in before)


def pid_in(pidfile: Path) -> int | None:
    """The pid in a pid file, if it is there and whole: as one master follows another the file comes and goes."""
    try:
        text = pidfile.read_text()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") else None


def gone(pid: int, within_s: float = PATIENCE_S) -> None:
    """Wait until a process has ended (a zombie has), with all its threads: the main one may die first."""

    def ended() -> bool:
        try:
            process = psutil.Process(pid)
            return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() == 1
        except psutil.NoSuchProcess:
            return True

    eventually(ended, f"process {pid} ends", within_s)


def kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def open_paths(process: psutil.Process) -> list[str]:
    """The paths of its descriptors (proc(5), fd); a file that has no name any more ends in ` (deleted)`."""
    paths = []
    try:
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                paths.append(os.readlink(link))
    except PermissionError:
        raise
    except OSError:
        pass
    return paths


def pss_bytes(processes: list[psutil.Process]) -> int:
    """Proportional set size of a tree: a page shared by four counts as four quarters (proc(5), smaps_rollup)."""
    return sum(process.memory_full_info().pss for process in processes)


def written_bytes(processes: list[psutil.Process]) -> int:
    """The same of memory that is no file's: a library's share depends on which other processes map it just then."""
    rollups = [Path(f"/proc/{process.pid}/smaps_rollup").read_text() for process in processes]
    sizes = re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", "".join(rollups), re.MULTILINE)
    return sum(int(size) for size in sizes) * 1024


def holder_of_connections(processes: list[psutil.Process], address: Address) -> psutil.Process:
    """The process that has the server's end of a TCP connection: the acceptor, whatever it calls itself."""
    with address.connect() as client:
        here = client.getsockname()[:2]

        def find() -> psutil.Process | None:
            for process in processes:
                try:
                    connections = process.net_connections("tcp")
                except psutil.NoSuchProcess:
                    continue
                except psutil.AccessDenied:
                    # It hides from all but root (`PR_SET_DUMPABLE` in prctl(2)), as no other process of ours does.
                    if process.name() == "stanchion-acpt":
                        return process
                    raise
                for connection in connections:
                    if connection.status == psutil.CONN_ESTABLISHED and tuple(connection.raddr) == here:
                        return process
            return None

        found = eventually(find, "some process of the server accepts")
        assert found is not None
        return found
