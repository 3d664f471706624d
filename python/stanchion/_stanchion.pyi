"""The server itself, in Rust."""

from collections.abc import Callable
from os import PathLike
from typing import Protocol, type_check_only

from stanchion.facades import Listen
from stanchion.hooks import Hooks
from stanchion.interfaces import App
from stanchion.scribe import Scribe

__all__ = [
    "admin_page",
    "auto_workers",
    "become_app",
    "check_credentials",
    "cores",
    "first_not_roots_alone",
    "log",
    "log_as_it_is",
    "log_for",
    "network_view",
    "plan",
    "privileges",
    "refuse_threads",
    "seats",
    "serve",
    "settings_resolve",
    "settings_schema",
]

@type_check_only
class _Host(Protocol):
    """What the server asks of the Python that hosts it."""

    def load(self, expected: str | None = None) -> App:
        """Import the app; raise stanchion.loader.AppLoadError if it is broken."""

    def watched_files(self) -> list[str]:
        """The files whose change calls for a reload."""

    @property
    def has_scribe(self) -> bool:
        """Whether the settings ask for Python's logging on the server's own logs."""

    def set_up_scribe(self) -> Scribe:
        """Set that logging up; raise stanchion.effective.UsageError if it cannot be."""

    def reopen_logs(self) -> None:
        """Open the files of Python's handlers anew."""

    @property
    def has_hooks(self) -> bool:
        """Whether there is any hook to run."""

    def hook(self, name: str, *facts: int) -> None:
        """Run a hook; raise stanchion.hooks.HookError if it fails."""

    def request_hooks(self) -> Hooks | None:
        """What runs for each request."""

    def enter(self, listen: Listen) -> None:
        """Tell a worker's hooks how to get a listener of its own."""

    def write_stacks_to(self, dump_signal: int, dumps: int) -> None:
        """Have the stacks of all threads written there at this signal."""

    def thread_names(self) -> dict[int, str]:
        """What Python calls the threads of this process, by the kernel's ids."""

    def reconfigure(self) -> str:
        """Read the configuration again, for effective settings as for `serve`; raise if it is no good."""

    def revert(self) -> None:
        """Back to the configuration before the last one."""

def log(level: int, text: str) -> None:
    """Write a line to the error log; the level is one of the logging module's."""

def log_for(pid: int, time_us: int, level: int, text: str) -> None:
    """Write a line to the error log as if this process had, at this time, in microseconds since the epoch."""

def log_as_it_is(text: bytes) -> None:
    """Write text to the error log without a time, level or pid before it."""

def privileges(settings: str) -> list[tuple[str, str]]:
    """What each process of a server would be allowed, by its role; raise ValueError if it would not start for this."""

def become_app(settings: str) -> None:
    """Make of this process what the app would run as, for good; raise ValueError if that cannot be."""

def check_credentials(settings: str) -> list[str]:
    """Check the certificates and keys that effective settings name; ValueError if they cannot be served with. Gives
    what clients will not like of them, now or soon.
    """

def refuse_threads(host: _Host) -> None:
    """Wait a moment for this process to have one thread; raise ValueError, which names the others, if they stay."""

def network_view(files: list[str], namespace: str | PathLike[str] | None = None) -> str:
    """The listening sockets of a network namespace, how many connections are half open there, and what files say in
    there, as a JSON object."""

def admin_page() -> tuple[str, str]:
    """The admin listener's page, and its Content-Security-Policy."""

def first_not_roots_alone(path: str) -> str | None:
    """The first place on the way to an absolute path, or what is there, that others than root may change."""

def seats(settings: str) -> tuple[int, int]:
    """How many workers a server with these effective settings has at most on this machine, and how many requests they
    run at once; with `interface` auto as for WSGI."""

def cores() -> int:
    """How many cores this process may use: the fewest workers, if the settings leave the number to the machine."""

def auto_workers(settings: str) -> str | None:
    """The number of workers that this machine says, in words, if the effective settings leave it to the machine."""

def plan(question: str, progress: Callable[[float], object] | None = None) -> str:
    """Answer a question to the planner, a JSON object, with another one; raise ValueError if it makes no sense.

    `progress` gets the share that is done, at most ten times a second, and what it raises ends the planner.
    """

def settings_schema() -> str:
    """The table of settings, as a JSON list."""

def settings_resolve(layers: str) -> str:
    """Merge a JSON list of {"origin", "values"}, lowest first, into {"values", "errors", "unknown"}."""

def serve(settings: str, host: _Host, launcher: int | None = None) -> int:
    """Run the process tree. Returns, in each process that has to end, its exit code. To the pipe `launcher` goes one
    byte: 0 once the server serves, or the exit code if it ends before that."""
