"""A guest with the deployment of examples/ as it is shipped: both units, nginx, an app, all as Debian has it."""

import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import guest
from support.address import Address
from support.gate import Gate
from support.guest import Guest
from support.patience import eventually
from support.steady import Steady
from support.wire import Wire

EXAMPLES = Path(__file__).parents[2] / "examples"
SITE = "/opt/site"
UNITS = "/etc/systemd/system"

SCRIPT = f"""\
#!/srv/app/.venv/bin/python3
import sys
sys.path.insert(0, {SITE!r})
from stanchion.cli import main
sys.exit(main())
"""
"""The script that pip would have made, for a package that is mounted and not installed."""

APP = """\
import os
import time
{before}
os.environ["GATE"] = "/run/gate"
from rendezvous import announce, wait_for_pass

def app(environ, start_response):
    if environ["PATH_INFO"] == "/held":
        announce("held")
        wait_for_pass()
    else:
        # So that there is always one that runs.
        time.sleep(0.003)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"{release}"]
"""


@dataclass
class Deployment:
    """The services in the guest, and their addresses."""

    guest: Guest
    gate: Gate
    nginx: Address
    direct: Address
    """Past nginx, on the socket unit's socket."""

    def release(self, number: int, before: str = "") -> None:
        """Put an app there that answers with this number; `before` is what it does while it is imported."""
        path = self.guest.path("/srv/app/module.py")
        path.with_suffix(".new").write_text(APP.format(release=number, before=before))
        path.with_suffix(".new").rename(path)

    def systemctl(self, *words: str, check: bool = True) -> int:
        return self.guest.run("systemctl", *words, check=check).returncode

    def shown(self, *names: str) -> list[str]:
        """Properties of the service."""
        return [self.guest.show("stanchion.service", name) for name in names]

    def main(self) -> int:
        """The main process, by its number in the guest."""
        return int(self.shown("MainPID")[0])

    def state(self) -> str:
        return self.shown("ActiveState")[0]

    def journal(self) -> str:
        return self.guest.journal("stanchion.service")

    def logged(self, what: str) -> None:
        """Wait until the journal has it."""
        eventually(lambda: what in self.journal(), f"{what!r} in the journal: {self.journal()[-2000:]}")

    def ask(self, address: Address, path: str = "/") -> Wire:
        """A connection on which a request is under way."""
        wire = self.guest.inside(lambda: Wire.connect(address))
        wire.send(f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
        return wire

    def answer(self, address: Address) -> str:
        with self.ask(address) as wire:
            response = wire.response()
            assert response.status == 200, response.body
            return response.text

    def held(self) -> list[Wire]:
        """Requests that the app has and keeps until the gate is opened: one by nginx, one past it."""
        wires = [self.ask(address, "/held") for address in (self.nginx, self.direct)]
        assert self.gate.announcements(len(wires)) == ["held"] * len(wires)
        return wires

    def load(self, stack: ExitStack, fine: tuple[int, ...] = (200,)) -> "Load":
        """Clients that ask all the time until the stack is closed; any answer but the fine ones is a failure."""
        # Past nginx without keep-alive: on a kept connection a request may cross with the server's closing it, which
        # neither side can prevent (RFC 9112 section 9.3.1). nginx asks again then.
        loads = [Steady([self.nginx], fine=fine), Steady([self.direct], keep_alive=(False,), fine=fine)]
        for load in loads:
            self.guest.inside(load.__enter__)
            stack.push(load.__exit__)
        return Load(loads)


@dataclass
class Load:
    loads: list[Steady]

    def more(self) -> None:
        for load in self.loads:
            load.more()

    def failed(self) -> int:
        return sum(load.failed() for load in self.loads)

    def clients(self) -> int:
        """Each has one request under way at a time."""
        return sum(load.clients() for load in self.loads)

    def assert_no_failure(self) -> None:
        for load in self.loads:
            load.assert_no_failure()


@contextmanager
def installed(home: Path) -> Iterator[Deployment]:
    """Installed and enabled, and not started but for nginx."""
    found = importlib.util.find_spec("stanchion")
    assert found and found.origin
    apps = Path(__file__).parents[1] / "apps"
    binds = {Path(found.origin).parent: f"{SITE}/stanchion", apps / "rendezvous.py": f"{SITE}/rendezvous.py"}
    with guest.booted(home, binds) as booted:
        booted.run("python3", "-m", "venv", "--without-pip", "/srv/app/.venv")
        script = booted.path("/srv/app/.venv/bin/stanchion")
        script.write_text(SCRIPT)
        script.chmod(0o755)
        for unit in ("stanchion.service", "stanchion.socket"):
            booted.path(f"{UNITS}/{unit}").write_bytes((EXAMPLES / "systemd" / unit).read_bytes())
        booted.path("/etc/nginx/nginx.conf").write_bytes((EXAMPLES / "nginx.conf").read_bytes())
        gate = Gate(booted.path("/run/gate"))
        for fifo in booted.path("/run/gate").iterdir():
            fifo.chmod(0o666)
        made = Deployment(
            booted, gate, Address("127.0.0.1", 80), Address(path=str(booted.path("/run/stanchion/stanchion.sock")))
        )
        made.release(1)
        made.systemctl("daemon-reload")
        made.systemctl("restart", "nginx")
        yield made
        print(f"--- its journal\n{made.journal()}")
        gate.open()
        gate.close()
