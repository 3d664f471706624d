"""Processes and cgroups as files: what is read out of them, and what is not known when they are not there."""

import os
import socket
from pathlib import Path

import pytest

from stanchion.doctor import processes
from stanchion.doctor.facts import Cgroup, Pressure

PROC = Path("/proc")


def write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


@pytest.mark.privileges
def test_the_owner_of_a_socket_is_found() -> None:
    with socket.socket() as sock, socket.fromfd(sock.fileno(), socket.AF_INET, socket.SOCK_STREAM):
        owners = processes.Owners(PROC).of(os.fstat(sock.fileno()).st_ino)
    (owner,) = owners
    assert owner.pid == os.getpid()
    assert owner.command == " ".join((PROC / "self/cmdline").read_text().split("\0")).strip()
    assert owner.fds is not None and owner.fds_max is not None and 3 < owner.fds <= owner.fds_max
    assert owner.cgroup == (PROC / "self/cgroup").read_text()


def test_a_master_stands_before_its_workers_whatever_its_pid(tmp_path: Path) -> None:
    """This holds also where a service manager has the socket too."""
    for pid, ppid in [(1, 0), (661, 32740), (662, 32740), (32740, 1)]:
        write(tmp_path / str(pid), {"comm": "a) b\n", "stat": f"{pid} (a) b) S {ppid} 1 1"})
        (tmp_path / str(pid) / "fd").mkdir()
        (tmp_path / str(pid) / "fd" / "5").symlink_to("socket:[7]")
    assert [owner.pid for owner in processes.Owners(tmp_path).of(7)] == [1, 32740, 661, 662]


def test_a_socket_that_no_process_has_open_has_no_owner() -> None:
    assert processes.Owners(PROC).of(2**60) == ()


def test_a_process_that_is_gone_is_no_owner() -> None:
    assert processes.owner(PROC, 2**30) is None


PSI = "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=2.00 avg60=0.00 avg300=0.00 total=1\n"


def test_a_unified_cgroup(tmp_path: Path) -> None:
    write(tmp_path, {"cgroup.controllers": "cpu memory pids\n"})
    home = tmp_path / "a.slice/b"
    write(
        home,
        {
            "cgroup.type": "domain\n",
            "memory.max": "1000\n",
            "memory.current": "900\n",
            "memory.events": "low 0\nmax 7\noom 3\noom_kill 2\n",
            "pids.max": "max\n",
            "pids.current": "5\n",
            "pids.events": "max 1\n",
            "cpu.stat": "usage_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 9\n",
            "memory.pressure": PSI,
        },
    )
    (found,) = processes.cgroups(tmp_path, ["0::/a.slice/b\n", "0::/a.slice/b\n"])
    assert found == Cgroup(str(home), 1000, 900, 2, None, 5, 1, 10, 4, {"memory": Pressure(12.5, 2.0)})


def test_the_root_of_all_cgroups_limits_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"cgroup.controllers": "cpu\n", "cpu.pressure": PSI})
    assert processes.cgroups(tmp_path, ["0::/\n"]) == []


def test_cgroups_of_the_first_version(tmp_path: Path) -> None:
    limits = {"memory.limit_in_bytes": "1000\n", "memory.usage_in_bytes": "900\n", "memory.oom_control": "oom_kill 2\n"}
    write(tmp_path / "memory/a", limits)
    write(tmp_path / "pids/a", {"pids.max": "9\n", "pids.current": "8\n"})
    found = processes.cgroups(tmp_path, ["8:pids:/a\n5:devices:/a\n4:memory:/a\n"])
    assert found == [Cgroup(f"{tmp_path}/memory/a", 1000, 900, 2), Cgroup(f"{tmp_path}/pids/a", pids_max=9, pids=8)]


def test_no_limit_of_the_first_version_is_a_number(tmp_path: Path) -> None:
    write(tmp_path / "memory/a", {"memory.limit_in_bytes": "9223372036854771712\n"})
    (found,) = processes.cgroups(tmp_path, ["4:memory:/a\n"])
    assert found.memory_max_bytes is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [(PSI, Pressure(12.5, 2.0)), ("some avg10=1.00 avg60=0.00 avg300=0.00 total=1\n", Pressure(1.0, 0.0)), ("", None)],
)
def test_pressure(tmp_path: Path, text: str, expected: Pressure | None) -> None:
    write(tmp_path, {"cpu": text})
    assert processes.pressure(tmp_path / "cpu") == expected
