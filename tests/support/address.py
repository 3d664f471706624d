"""Where a server listens, and how to get there."""

import re
import socket
from dataclasses import dataclass

from support.patience import PATIENCE_S


@dataclass(frozen=True)
class Address:
    """A TCP host and port, or a unix path (a leading `@` is Linux's abstract namespace, unix(7))."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> "Address":
        """From the form servers log: `http://127.0.0.1:8000`, `http://[::1]:8000`, `unix:/path`, `unix:@name`."""
        if text.startswith("unix:"):
            return cls(path=text.removeprefix("unix:"))
        found = re.fullmatch(r"(?:https?://)?(?:\[(?P<v6>[^]]+)\]|(?P<v4>[^:]+)):(?P<port>\d+)", text)
        if not found:
            raise ValueError(f"not an address: {text!r}")
        return cls(host=found["v6"] or found["v4"], port=int(found["port"]))

    def connect(self, timeout_s: float = PATIENCE_S) -> socket.socket:
        if not self.path:
            return socket.create_connection((self.host, self.port), timeout_s)
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(timeout_s)
        try:
            sock.connect("\0" + self.path[1:] if self.path.startswith("@") else self.path)
        except OSError:
            sock.close()
            raise
        return sock
