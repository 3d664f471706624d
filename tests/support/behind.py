"""The shop of examples/behind: a proxy and a server, each with its file as it is shipped but for where things are."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from support.example import adapted
from support.patience import PATIENCE_S
from support.ports import LOOPBACK, row_of_ports
from support.proxies import Foreground, temp_paths
from support.server import STANCHION, Serve, Server
from support.tls import Authority

NAME = "localhost"
CLIENT = "127.0.0.5"
"""The address that clients connect from, and no proxy does."""
STYLE = b"a{}" * 10_000
"""The content of /static/a.css."""


@dataclass(frozen=True)
class Shop:
    """The directory in place of /srv/shop, /run/shop and /etc/shop, and the issuer of the shop's certificates."""

    home: Path
    authority: Authority
    port: int
    """The proxy's port for clients without TLS; the next port is for clients with TLS."""

    @property
    def socket(self) -> Path:
        return self.home / "s"

    @property
    def files(self) -> Path:
        return self.home / "srv"

    @property
    def certificates(self) -> Path:
        return self.home / "tls"

    @property
    def place(self) -> str:
        """Host and port for clients with TLS."""
        return f"{NAME}:{self.port + 1}"

    @property
    def context(self) -> ssl.SSLContext:
        return self.authority.context()

    def furnish(self) -> None:
        (self.files / "static/.git").mkdir(parents=True)
        (self.files / "static/.git/config").write_text("secret")
        (self.files / "static/a.css").write_bytes(STYLE)
        self.certificates.mkdir()
        pair = self.authority.issue(NAME)
        chain, key = pair.certfile.read_text(), pair.keyfile.read_text()
        for name, text in (("fullchain", chain), ("privkey", key), ("both", chain + key)):
            (self.certificates / f"{name}.pem").write_text(text)

    def speak(self, version: str, client: str) -> ssl.SSLSocket:
        """A connection with TLS, on which this client has asked for a version of HTTP, and gets it."""
        context = self.context
        context.set_alpn_protocols([version])
        plain = socket.create_connection((LOOPBACK, self.port + 1), PATIENCE_S, source_address=(client, 0))
        sock = context.wrap_socket(plain, server_hostname=NAME)
        assert sock.selected_alpn_protocol() == version
        return sock

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=f"https://{self.place}", verify=self.context, trust_env=False, timeout=PATIENCE_S)


@dataclass(frozen=True)
class Kind:
    """A proxy of the examples: its program, its file, and what is otherwise in a test."""

    program: str
    file: str
    here: Callable[[Shop], dict[str, str]]

    @property
    def settings(self) -> str:
        """The server's file."""
        return f"{self.program}.conf.py"

    @contextmanager
    def before(self, serve: Serve, app: str, home: Path, authority: Authority) -> Iterator[Shop]:
        home.mkdir()
        with row_of_ports(2) as port:
            shop = Shop(home, authority, port)
            shop.furnish()
            self.serve(serve, app, shop)
            proxy = Foreground(self.program, home / "proxy", adapted(f"behind/{self.file}", self.here(shop)), port + 1)
            try:
                proxy.wait()
                yield shop
            finally:
                proxy.stop()

    def serve(self, serve: Serve, app: str, shop: Shop) -> Server:
        text = adapted(f"behind/{self.settings}", {"/srv/shop": str(shop.files), "shop:app": app})
        group = {"nginx": "www-data"}.get(self.program, self.program)
        given = f"unix:/run/shop/shop.sock?mode=0660&group={group}"
        assert given in text
        # The user that runs the test also runs the proxy.
        (shop.home / "shop.conf.py").write_text(text.replace(given, f"unix:{shop.socket}"))
        as_shipped = replace(STANCHION, arguments=())
        return serve("", "-c", f"{shop.home}/shop.conf.py", "--workers", "1", bind=None, kind=as_shipped)


def of_nginx(shop: Shop) -> dict[str, str]:
    return {
        "user www-data;": "daemon off; master_process off;",
        "worker_processes auto;": "worker_processes 1;",
        "/run/nginx.pid": f"{shop.home}/nginx.pid",
        "/var/log/nginx/error.log": f"{shop.home}/error.log",
        "http {": f"http {{ access_log off; {temp_paths(shop.home)}",
        "/run/shop/shop.sock": str(shop.socket),
        "listen 80 ": f"listen {LOOPBACK}:{shop.port} ",
        "listen 443 ": f"listen {LOOPBACK}:{shop.port + 1} ",
        "/etc/shop/tls": str(shop.certificates),
        "/srv/shop": str(shop.files),
    }


def of_haproxy(shop: Shop) -> dict[str, str]:
    return {
        "    user haproxy\n    group haproxy\n": "",
        "/run/shop/shop.sock": str(shop.socket),
        "bind :80": f"bind {LOOPBACK}:{shop.port}",
        "bind :443": f"bind {LOOPBACK}:{shop.port + 1}",
        "/etc/shop/tls": str(shop.certificates),
    }


def of_caddy(shop: Shop) -> dict[str, str]:
    # No port for its own administration nor for HTTP, and a certificate that is there.
    options = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"
    pair = f"{shop.certificates}/fullchain.pem {shop.certificates}/privkey.pem"
    return {
        "shop.example {": f"{options}https://{shop.place} {{\n\ttls {pair}",
        "/run/shop/shop.sock": str(shop.socket),
        "/srv/shop": str(shop.files),
    }


def of_envoy(shop: Shop) -> dict[str, str]:
    return {
        '"::", port_value: 80, ipv4_compat: true': f"{LOOPBACK}, port_value: {shop.port}",
        '"::", port_value: 443, ipv4_compat: true': f"{LOOPBACK}, port_value: {shop.port + 1}",
        "/run/shop/shop.sock": str(shop.socket),
        "/etc/shop/tls": str(shop.certificates),
    }


NGINX = Kind("nginx", "nginx.conf", of_nginx)
HAPROXY = Kind("haproxy", "haproxy.cfg", of_haproxy)
CADDY = Kind("caddy", "Caddyfile", of_caddy)
ENVOY = Kind("envoy", "envoy.yaml", of_envoy)
