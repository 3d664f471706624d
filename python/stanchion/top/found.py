"""Which servers there are on this host, and where their admin listeners are: by how they were started (/proc)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stanchion.doctor import asked, processes, settings
from stanchion.effective import UsageError

SERVERS_SHOWN_MAX = 5


@dataclass(frozen=True)
class Server:
    """A master whose settings name an admin listener."""

    pid: int
    admin: str
    control: str | None


def only(parse: settings.Parse, proc: Path = Path("/proc")) -> Server:
    """The only running server. UsageError if there is none, or more than one."""
    found = list(servers(lambda pid: settings.of(pid, parse, proc), proc))
    match found:
        case [server]:
            return server
        case []:
            raise UsageError(
                "top: where is the server? None on this host shows an admin listener: start it with --admin unix:PATH, "
                "and name that here if it cannot be seen (--admin, STANCHION_ADMIN, or `admin` in the config file)"
            )
    shown = ", ".join(f"--admin {server.admin} (process {server.pid})" for server in found[:SERVERS_SHOWN_MAX])
    raise UsageError(f"top: there are {len(found)} servers on this host, name one of them: {shown}")


def servers(settings_of: Callable[[int], settings.Settings | None], proc: Path = Path("/proc")) -> Iterator[Server]:
    """Masters, oldest numbers first. The others of a server have no command line."""
    for pid in sorted(processes.pids(proc)):
        owner = processes.owner(proc, pid)
        if owner is None or asked.server(owner) != "stanchion":
            continue
        known = settings_of(pid)
        admin = _whole(pid, known.values.get("admin"), proc) if known else None
        if known and admin:
            yield Server(pid, admin, _whole(pid, known.values.get("control"), proc))


def _whole(pid: int, address: str | None, proc: Path) -> str | None:
    """An address that means the same here: the path of a socket is relative to the directory of its server."""
    if not address or not address.startswith("unix:") or address.startswith(("unix:/", "unix:@")):
        return address
    try:
        directory = (proc / str(pid) / "cwd").readlink()
    except OSError:
        return None
    return f"unix:{directory}/{address.removeprefix('unix:')}"
