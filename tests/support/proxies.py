"""A real nginx and a real HAProxy on loopback, each strict as it comes or as lax as it can be."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.address import Address
from support.neighbour import accepts, end, running
from support.patience import eventually
from support.ports import LOOPBACK

MARK = "X-Meant"
"""A field that the proxy adds to each request that it means to forward, with a secret that clients do not have."""

NGINX = """
daemon off; master_process off; worker_processes 1; pid {home}/nginx.pid;
events {{ worker_connections 512; }}
http {{
    access_log off;
    {temp_paths}
    client_header_timeout {patience_s}s; client_body_timeout {patience_s}s;
    {laxity}
    upstream app {{ server {upstream} max_fails=0; keepalive 8; }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://app;
            proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
            proxy_set_header {mark} {secret}.$remote_port;
            proxy_ignore_client_abort on; proxy_next_upstream off;
        }}
    }}
}}
"""
# A body is passed on while it comes, in chunks if it came so.
NGINX_LAXITY = "ignore_invalid_headers off; underscores_in_headers on; proxy_request_buffering off;"

HAPROXY = """
global
    maxconn 512
    nbthread 1
defaults
    mode http
    timeout connect {patience_s}s
    timeout client {patience_s}s
    timeout server {patience_s}s
    retries 0
    http-reuse always
frontend clients
    bind {listen}
    {laxity}
    http-request set-header {mark} {secret}.%[src_port]
    default_backend app
backend app
    server app {upstream}
"""
HAPROXY_LAXITY = "option accept-invalid-http-request"


def program(name: str) -> str | None:
    """Of the system, or of PyPI (requirements/fronts.in)."""
    return shutil.which(name, path=f"/usr/sbin:/usr/bin:/sbin:/bin:{Path(sys.executable).parent}")


def temp_paths(home: Path) -> str:
    """Where nginx may write, whatever it does."""
    return " ".join(f"{kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))


@contextlib.contextmanager
def nginx_as_peer(home: Path, settings: str, location: str) -> Iterator[Address]:
    """nginx on a unix socket, with settings for all of HTTP and one location, which is to be compared with."""
    command = program("nginx")
    assert command
    config, listen = home / "config", f"unix:{home}/socket"
    config.write_text(
        f"daemon off; master_process off; worker_processes 1; pid {home}/pid; error_log {home}/errors;"
        f"events {{ worker_connections 64; }} http {{ access_log off; {temp_paths(home)} {settings}"
        f"server {{ listen {listen}; location {location} }} }}"
    )
    arguments = ["-c", str(config), "-p", str(home), "-e", f"{home}/errors"]
    address = Address.parse(listen)
    with running([command, *arguments], home, accepts(address)):
        yield address


class Foreground:
    """One process in the foreground, which one signal ends."""

    def __init__(self, name: str, home: Path, config_text: str, port: int) -> None:
        command = program(name)
        assert command
        home.mkdir()
        config = home / "config.yaml"  # Traefik wants to know what it is.
        config.write_text(config_text)
        self.address = Address(LOOPBACK, port)
        self._log = home / "log"
        arguments = {
            "nginx": ["-c", str(config), "-p", str(home), "-e", str(home / "error.log")],
            "haproxy": ["-db", "-f", str(config)],
            "caddy": ["run", "--config", str(config), "--adapter", "caddyfile"],
            # Nothing that it would share with others on this machine.
            "envoy": ["--config-yaml", config_text, "--disable-hot-restart", "--concurrency", "1"],
            "traefik": [f"--entryPoints.web.address={LOOPBACK}:{port}", f"--providers.file.filename={config}"],
        }[name]
        # Caddy keeps certificates at home.
        surroundings = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [command, *arguments], env=surroundings, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait(self) -> None:
        eventually(self._accepts, "the proxy accepts")

    def _accepts(self) -> bool:
        assert self._process.poll() is None, self.log()
        return accepts(self.address)()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        end(self._process)


class Proxy(Foreground):
    """A proxy of a kind, before one server."""

    def __init__(self, kind: str, home: Path, port: int, upstream: Address, secret: str, patience_s: int = 5) -> None:
        name, _, laxity = kind.partition(" ")
        template, lax = {"nginx": (NGINX, NGINX_LAXITY), "haproxy": (HAPROXY, HAPROXY_LAXITY)}[name]
        config = template.format(
            home=home,
            temp_paths=temp_paths(home),
            laxity=lax if laxity else "",
            listen=f"{LOOPBACK}:{port}",
            upstream=f"{upstream.host}:{upstream.port}",
            mark=MARK,
            secret=secret,
            patience_s=patience_s,
        )
        super().__init__(name, home, config, port)
