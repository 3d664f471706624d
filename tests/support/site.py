"""A host in small, to which a deployment of examples/migrating is brought: others served there, and stanchion now."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import neighbour
from support.address import Address
from support.example import SCRIPTS, adapted
from support.gate import Gate
from support.patience import PATIENCE_S
from support.server import APPS
from support.wire import Wire, request

SEEN = (
    *("REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "CONTENT_TYPE", "CONTENT_LENGTH"),
    *("SERVER_PROTOCOL", "REMOTE_ADDR", "wsgi.url_scheme", "wsgi.multithread"),
    *("HTTP_HOST", "HTTP_COOKIE", "HTTP_X_FORWARDED_PROTO"),
)
"""The keys of environ that apps look at."""

SPOOFED = [
    *("SCRIPT_NAME: /spoofed", "PATH_INFO: /spoofed", "X-Forwarded-For: spoofed", "X-Forwarded-Ssl: on"),
    *("X-Forwarded-Protocol: ssl", "X-Request-Id: spoofed", "X-Request-Start: spoofed"),
]
"""Header lines that a server believes of a proxy."""

Seen = list[dict[str, Any]]


class Site:
    """Directories in place of /srv/shop, /run/shop and /var/log/shop, open to all users, and the app `shop:app`."""

    def __init__(self) -> None:
        # Not pytest's own, which no other user may enter, and whose long names leave no room for sockets' (unix(7)).
        self.root = Path(tempfile.mkdtemp(prefix="shop-"))
        self.root.chmod(0o755)
        self.srv, self.run, self.log = [self.root / name for name in ("srv", "run", "log")]
        for directory in (self.srv, self.run, self.log):
            directory.mkdir()
            directory.chmod(0o777)
        for module in ("shop.py", "api.py", "echo.py", "rendezvous.py"):
            shutil.copy(APPS / module, self.srv)
        self.socket = Address(path=str(self.run / "shop.sock"))
        self.gate = Gate(self.root / "gate")
        for fifo in (self.root / "gate").iterdir():
            fifo.chmod(0o666)
        self._here = {"/srv/shop": str(self.srv), "/run/shop": str(self.run), "/var/log/shop": str(self.log)}

    def close(self) -> None:
        for log in (*self.log.iterdir(), *self.root.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')}")
        self.gate.open()
        self.gate.close()
        shutil.rmtree(self.root)

    def bring(self, name: str, changes: dict[str, str] | None = None) -> Path:
        """Put a file of examples/migrating there, with nothing changed but where things are, and by `changes`."""
        text = adapted(f"migrating/{name}", changes or {})
        for given, here in self._here.items():
            text = text.replace(given, here)
        path = self.root / Path(name).name
        path.write_text(text)
        return path

    @contextlib.contextmanager
    def serving(self, command: list[str], address: Address) -> Iterator[subprocess.Popen[bytes]]:
        """Run a server in /srv/shop until the block ends; it has begun to listen there."""
        # Ours first, so that `stanchion` and `gunicorn` in a script are those under test.
        environment = {
            **self.gate.environment,
            "PATH": f"{SCRIPTS}:{os.environ['PATH']}:/usr/sbin",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with neighbour.running(command, self.srv, neighbour.accepts(address), environment) as process:
            yield process

    def stanchion(self, config: Path, *words: str) -> list[str]:
        return [str(SCRIPTS / "stanchion"), "serve", "-c", str(config), *words]

    def stopped_by(self, number: signal.Signals, process: subprocess.Popen[bytes], address: Address) -> None:
        """A request that runs is answered, and then the server leaves."""
        with Wire.connect(address) as wire:
            wire.send(request("GET", "/held"))
            assert self.gate.announcement() == "held"
            process.send_signal(number)
            assert wire.silent(0.3)
            self.gate.let_pass(1)
            assert wire.response().status == 200
        # gunicorn's threads may wait for as long as its graceful_timeout, 30 s, for a connection that was kept.
        assert process.wait(4 * PATIENCE_S) == 0


def seen(address: Address, mount: str = "") -> Seen:
    """The environ of two requests as the app finds it, the second with a body."""
    fields = ("Cookie: a=b", "X-Forwarded-Proto: https")
    found = []
    for ask in (
        lambda wire: wire.get(f"{mount}/a%20b/c?d=%2F&e", *fields),
        lambda wire: wire.post(f"{mount}/p", b"x" * 100_000, "Content-Type: application/x-test", *fields),
    ):
        with Wire.connect(address) as wire:
            response = ask(wire)
        assert response.status == 200, response.body
        answer = response.json()
        kept = {key: answer["environ"].get(key) for key in SEEN}
        # Without a body some servers leave these keys out, and some set them empty.
        kept = {key: value or "" if key.startswith("CONTENT_") else value for key, value in kept.items()}
        found.append({**kept, "length": answer["length"], "sha256": answer["sha256"]})
    return found


def seen_of_a_liar(address: Address, mount: str = "") -> dict[str, Any]:
    """The environ of a request in which a client says what only the proxy may."""
    with Wire.connect(address) as wire:
        response = wire.get(f"{mount}/", *SPOOFED)
    assert response.status == 200, response.body
    environ: dict[str, Any] = response.json()["environ"]
    return environ
