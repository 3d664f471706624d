"""The target of a load, and the outcome."""

from collections.abc import Callable
from dataclasses import dataclass, field

Progress = Callable[[float], None]
"""Called with the share that is done, 0 to 1."""


class Failed(Exception):
    """The tool could not offer the load: what, and what to do."""


@dataclass(frozen=True)
class Target:
    address: str
    """`127.0.0.1:8000`, or `unix:` and an absolute path."""
    more: tuple[str, ...] = ()
    """The addresses of its other hosts: each connection is to one of all, at random."""

    @property
    def unix_path(self) -> str:
        """Empty, if it is TCP."""
        return self.address.removeprefix("unix:") if self.address.startswith("unix:") else ""

    @property
    def host_and_port(self) -> tuple[str, int]:
        return self.hosts_and_ports[0]

    @property
    def hosts_and_ports(self) -> list[tuple[str, int]]:
        parts = [address.rpartition(":") for address in (self.address, *self.more)]
        return [(host, int(port)) for host, _, port in parts]

    def url(self, path: str) -> str:
        """The URL for a tool; the host is only a word where the connection is to a unix socket."""
        return f"http://{'localhost' if self.unix_path else self.address}{path}"


@dataclass
class Offered:
    """The meanings are those of `result.Measured`."""

    tool: str
    command: str
    """The command as it can be typed again; for `own`, the load in words."""
    figures: dict[str, float]
    latencies_ms: list[float] = field(default_factory=list)
    timeline: list[tuple[float, float, str]] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)
    steps: list[dict[str, float]] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
