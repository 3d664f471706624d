"""The files of examples/alone under Debian's systemd: no proxy, TLS, HTTP/2, static files, and no process is root."""

import importlib.util
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import guest
from support.deployment import EXAMPLES, SCRIPT, SITE, UNITS
from support.guest import Guest
from support.patience import PATIENCE_S
from support.tls import NAME, Authority, Pair

FILES = ("shop.service", "shop.socket", "shop-http.socket")
APP = """\
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{environ['wsgi.url_scheme']} {environ['SERVER_PROTOCOL']}".encode()]
"""
HOOK = "/etc/letsencrypt/renewal-hooks/deploy/shop"
LINEAGE = "/etc/letsencrypt/live/shop"

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.own("the units are stanchion's"),
    pytest.mark.skipif(bool(guest.not_here()), reason=f"NOT TESTED UNDER SYSTEMD: {guest.not_here()}"),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@dataclass
class Shop:
    guest: Guest
    authority: Authority

    def renew(self, pair: Pair, check: bool = True) -> int:
        """Do as certbot does once it has a new certificate; the exit code of its hook."""
        for file, name in ((pair.certfile, "fullchain.pem"), (pair.keyfile, "privkey.pem")):
            self.guest.path(f"{LINEAGE}/{name}").write_bytes(file.read_bytes())
        return self.guest.run("env", f"RENEWED_LINEAGE={LINEAGE}", HOOK, check=check).returncode

    def curl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        name = ["--connect-to", f"{NAME}::127.0.0.1:", "--cacert", str(self.authority.own.certfile)]
        command = ["curl", "--silent", "--show-error", "--max-time", str(PATIENCE_S), *name, *arguments]
        return self.guest.inside(lambda: subprocess.run(command, capture_output=True, text=True, check=False))

    def subject(self) -> str:
        """The serial number of the certificate that the server shows."""
        told = self.curl("--write-out", "%{certs}", "--output", "/dev/null", f"https://{NAME}/").stdout
        return next(line for line in told.splitlines() if line.startswith("Serial Number:"))


@pytest.fixture
def shop(tmp_path: Path, authority: Authority) -> Iterator[Shop]:
    """Installed as docs/without-a-proxy.md has it."""
    found = importlib.util.find_spec("stanchion")
    assert found and found.origin
    with guest.booted(tmp_path / "guest", {Path(found.origin).parent: f"{SITE}/stanchion"}) as booted:
        # It is there for other tests.
        booted.run("systemctl", "stop", "nginx")
        booted.run("useradd", "--system", "--user-group", "--home-dir", "/srv/shop", "shop")
        booted.run("mkdir", "-p", "/srv/shop/static", LINEAGE, str(Path(HOOK).parent))
        booted.run("python3", "-m", "venv", "--without-pip", "/srv/shop/.venv")
        script = booted.path("/srv/shop/.venv/bin/stanchion")
        script.write_text(SCRIPT.replace("/srv/app", "/srv/shop"))
        script.chmod(0o755)
        booted.path("/srv/shop/module.py").write_text(APP)
        booted.path("/srv/shop/static/shop.css").write_text("body { color: teal }\n")
        for unit in FILES:
            booted.path(f"{UNITS}/{unit}").write_bytes((EXAMPLES / "alone" / unit).read_bytes())
        hook = booted.path(HOOK)
        hook.write_bytes((EXAMPLES / "alone" / "renew-hook").read_bytes())
        hook.chmod(0o755)
        shop = Shop(booted, authority)
        shop.renew(authority.issue(NAME))
        booted.run("systemctl", "daemon-reload")
        booted.run("systemctl", "start", "shop.socket", "shop-http.socket", "shop.service")
        yield shop
        print(f"--- its journal\n{booted.journal('shop.service')}")


def test_it_serves_alone_on_both_ports(shop: Shop) -> None:
    assert shop.curl("--http1.1", f"https://{NAME}/").stdout == "https HTTP/1.1"
    assert shop.curl("--http2", f"https://{NAME}/").stdout == "https HTTP/2.0"
    assert shop.curl("--http2", f"https://{NAME}/static/shop.css").stdout == "body { color: teal }\n"
    told = shop.curl("--write-out", "%{json}", "--output", "/dev/null", f"http://{NAME}/page?number=1")
    answer = json.loads(told.stdout)
    assert (answer["http_code"], answer["redirect_url"]) == (301, f"https://{NAME}/page?number=1")
    owners = shop.guest.owners("stanchion: ")
    assert len(owners) > 4 and set(owners) == {"shop"}
    main = shop.guest.show("shop.service", "MainPID")
    status = shop.guest.path(f"/proc/{main}/status").read_text().splitlines()
    assert {line.split()[1] for line in status if line.startswith("Cap")} == {"0" * 16}


def test_a_challenge_of_certbots_is_answered_and_the_app_cannot_put_any_there(shop: Shop) -> None:
    folder = "/var/lib/shop-acme/.well-known/acme-challenge"
    shop.guest.run("mkdir", "-p", folder)
    shop.guest.path(f"{folder}/token").write_text("token.key")
    assert shop.curl(f"http://{NAME}/.well-known/acme-challenge/token").stdout == "token.key"
    # certbot writes there as root, where a link of the app's would lead it astray.
    link = ("runuser", "--user", "shop", "--", "ln", "-s", "/etc", "/var/lib/shop-acme/link")
    assert shop.guest.run(*link, check=False).returncode != 0


def test_a_renewed_certificate_is_served_and_a_broken_one_is_not(shop: Shop, authority: Authority) -> None:
    first = shop.subject()
    shop.renew(authority.issue(NAME))
    second = shop.subject()
    assert second != first
    # A key of another certificate.
    broken = Pair(authority.issue(NAME).certfile, authority.issue(NAME).keyfile)
    assert shop.renew(broken, check=False) != 0
    assert "does not" in shop.guest.journal("shop.service")
    assert shop.subject() == second
