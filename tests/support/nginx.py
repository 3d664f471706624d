"""A real nginx in a namespace, with its own directory."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from support import neighbour
from support.address import Address
from support.netns import Namespace
from support.patience import eventually
from support.proxies import temp_paths

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
EXAMPLE = Path(__file__).parents[2] / "examples" / "nginx.conf"
PORT = 80


def adapted(home: Path, upstream: str, changes: Mapping[str, str]) -> str:
    """The example that users are given, with nothing changed but where things are, that one process does it all, and
    what the test asks for."""
    config = EXAMPLE.read_text()
    for given, here in {
        # nginx's only process runs as the user that runs the test.
        "user www-data;": "",
        "worker_processes auto;": "worker_processes 1;",
        "pid /run/nginx.pid;": f"pid {home}/nginx.pid;",
        "error_log /var/log/nginx/error.log warn;": f"error_log {home}/error.log warn;",
        "server unix:/run/stanchion/stanchion.sock": f"server {upstream}",
        "listen 80 backlog": f"listen 127.0.0.1:{PORT} backlog",
        "http {": f"http {{ access_log {home}/access.log; {temp_paths(home)}",
        **changes,
    }.items():
        assert config.count(given) == 1, f"{EXAMPLE.name} has no {given!r} any more, or more than one"
        config = config.replace(given, here)
    return config


class Nginx:
    """nginx in the foreground and in one process, so that one signal ends all of it."""

    def __init__(
        self, home: Path, upstream: str, namespace: Namespace, changes: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        assert NGINX
        home.mkdir()
        self._home = home
        config = home / "nginx.conf"
        config.write_text(adapted(home, upstream, changes))
        command = [NGINX, "-c", str(config), "-p", str(home), "-e", f"{home}/error.log"]
        self._process = subprocess.Popen(
            [*namespace.prefix, *command, "-g", "daemon off; master_process off;"], stdin=subprocess.DEVNULL
        )
        self.address = Address("127.0.0.1", PORT)
        eventually(lambda: namespace.run(self._accepts), "nginx accepts")

    def _accepts(self) -> bool:
        assert self._process.poll() is None, self.errors()
        return neighbour.accepts(self.address)()

    def errors(self) -> str:
        path = self._home / "error.log"
        return path.read_text() if path.exists() else ""

    def stop(self) -> None:
        neighbour.end(self._process)
