"""docs/migrating/from-others.md: a real Unicorn with its file, and stanchion with ours, do the same for operators."""

import os
import shutil
import signal
from contextlib import ExitStack

import pytest

from support import missing, processes
from support.address import Address
from support.patience import eventually
from support.ports import row_of_ports
from support.site import Site
from support.wire import Wire, request

UNICORN = shutil.which("unicorn")
WORKERS = 2

pytestmark = pytest.mark.own("the example is for stanchion")

RACKUP = """\
run(lambda do |env|
  if env["PATH_INFO"] == "/held"
    File.write("#{ENV["GATE"]}/announcements", "held\\n")
    File.open("#{ENV["GATE"]}/passes") { |passes| passes.readpartial(1) }
  end
  [200, {"Content-Length" => "#{Process.pid}".size.to_s}, [Process.pid.to_s]]
end)
"""

OURS = """\
import os
from rendezvous import announce, wait_for_pass
def app(environ, start_response):
    if environ["PATH_INFO"] == "/held":
        announce("held")
        wait_for_pass()
    start_response("200 OK", [])
    return [str(os.getpid()).encode()]
"""


def test_unicorn(site: Site) -> None:
    if why := missing.allowed("" if UNICORN else "NOT TESTED BESIDE UNICORN: unicorn is not installed"):
        pytest.skip(why)
    assert UNICORN
    (site.srv / "config.ru").write_text(RACKUP)
    with ExitStack() as stack:
        config, address, ports = brought(stack, site, "unicorn/unicorn.rb", {"delay: 5": "delay: 0.1"})
        operate(site, [UNICORN, "-E", "none", "-c", config], address, ports)


def test_stanchion(site: Site) -> None:
    (site.srv / "shop.py").write_text(OURS)
    with ExitStack() as stack:
        config, address, ports = brought(stack, site, "unicorn/after.conf.py", {"delay=5": "delay=0.1"})
        operate(site, ["stanchion", "serve", "-c", config, "shop:app"], address, ports)


def brought(stack: ExitStack, site: Site, name: str, soon: dict[str, str]) -> tuple[str, Address, list[Address]]:
    """The file, the address on TCP, and each worker's own, of which a third will come."""
    first = stack.enter_context(row_of_ports(1 + WORKERS + 1))
    # A worker finds its port taken until the one before it has left, and a test need not wait as long as an operator.
    config = site.bring(name, {"127.0.0.1:8080": f"127.0.0.1:{first}", "9293": str(first + 1), **soon})
    return str(config), Address("127.0.0.1", first), [Address("127.0.0.1", first + 1 + nr) for nr in range(WORKERS)]


def operate(site: Site, command: list[str], address: Address, ports: list[Address]) -> None:
    """Operate the server as scripts do that were written for Unicorn."""
    pidfile = site.run / "shop.pid"
    with site.serving(command, site.socket) as process:
        eventually(lambda: processes.pid_in(pidfile) == process.pid, "the pid file is there")
        assert os.stat(site.socket.path).st_mode & 0o777 == 0o770
        eventually(lambda: asked(address), "it listens on TCP too")
        # Each worker's own port is its alone.
        workers = {eventually(lambda at=at: asked(at), f"{at} answers") for at in ports}  # type: ignore[misc]
        assert len(workers) == WORKERS
        for at in (address, site.socket):
            eventually(lambda at=at: {asked(at) for _ in range(20)} == workers, "both answer")  # type: ignore[misc]
        os.kill(process.pid, signal.SIGTTIN)
        eventually(lambda: len({asked(address) for _ in range(20)}) == WORKERS + 1, "there is one worker more")
        os.kill(process.pid, signal.SIGTTOU)
        os.kill(process.pid, signal.SIGHUP)
        eventually(lambda: not workers & {asked(address) for _ in range(20)}, "all workers are new ones")
        os.kill(process.pid, signal.SIGUSR2)
        eventually(lambda: heir(site, process.pid), "the new master has the pid file, and the old one is gone")
        successor = heir(site, process.pid)
        with Wire.connect(site.socket) as wire:
            wire.send(request("GET", "/held"))
            assert site.gate.announcement() == "held"
            os.kill(successor, signal.SIGQUIT)
            assert wire.silent(0.3)
            site.gate.let_pass(1)
            assert wire.response().status == 200
        processes.gone(successor)


def asked(address: Address) -> int:
    """The pid of the process that answers; 0 if no process listens."""
    try:
        with Wire.connect(address) as wire:
            return int(wire.get("/", version="1.0").text)
    except ConnectionRefusedError:
        return 0


def heir(site: Site, old: int) -> int:
    """The new master, once it is alone."""
    pidfile = site.run / "shop.pid"
    if pidfile.with_suffix(".pid.oldbin").exists():
        return 0
    pid = processes.pid_in(pidfile)
    return pid if pid and pid != old else 0
