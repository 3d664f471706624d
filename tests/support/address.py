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
        """Parse the form that servers log: `http://127.0.0.1:8000`, `http://[::1]:8000`, `unix:/path`, `unix:@name`."""
        if text.startswith("unix:"):
            return cls(path=text.removeprefix("unix:"))
        found = re.fullmatch(r"(?:https?://)?(?:\[(?P<v6>[^]]+)\]|(?P<v4>[^:]+)):(?P<port>\d+)", text)
        if not found:
            raise ValueError(f"not an address: {text!r}")
        return cls(host=found["v6"] or found["v4"], port=int(found["port"]))

    def connect(
        self,
        timeout_s: float = PATIENCE_S,
        receive_buffer_bytes: int | None = None,
        segment_bytes: int | None = None,
    ) -> socket.socket:
        """A connected socket. Its receive buffer is set before connect: both ends agree on the window then (tcp(7)).

        They agree on the longest segment then, too. Segments of the loopback are so long that the server's kernel takes
        megabytes, and more of them later. A unix socket has no segments.
        """
        family = socket.AF_UNIX if self.path else socket.AF_INET6 if ":" in self.host else socket.AF_INET
        sock = socket.socket(family)
        try:
            sock.settimeout(timeout_s)
            if receive_buffer_bytes:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            if segment_bytes and not self.path:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment_bytes)
            sock.connect(self._name())
        except OSError:
            sock.close()
            raise
        return sock

    def _name(self) -> str | tuple[str, int]:
        if not self.path:
            return (self.host, self.port)
        return "\0" + self.path[1:] if self.path.startswith("@") else self.path
