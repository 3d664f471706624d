"""docs/migrating/from-others.md: uWSGI and stanchion behind the same nginx show the app the same."""

import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import missing
from support.address import Address
from support.example import settings
from support.nginx import NGINX
from support.patience import eventually
from support.ports import row_of_ports
from support.site import Site, seen, seen_of_a_liar
from support.wire import Wire, request

UWSGI = shutil.which("uwsgi_python3")

pytestmark = [
    pytest.mark.own("the example is for stanchion"),
    pytest.mark.skipif(not NGINX, reason="NOT TESTED BEHIND NGINX: nginx is not installed"),
]

NGINX_CONF = """\
daemon off; master_process off; pid {root}/nginx.pid; error_log {root}/nginx.log warn;
events {{}}
http {{
    access_log off;
    client_body_temp_path {root}/t1; proxy_temp_path {root}/t2; uwsgi_temp_path {root}/t3;
    fastcgi_temp_path {root}/t4; scgi_temp_path {root}/t5;
    server {{ listen 127.0.0.1:{port}; {location} }}
}}
"""


@contextlib.contextmanager
def nginx(site: Site, location: Path) -> Iterator[Address]:
    assert NGINX
    with row_of_ports(1) as port:
        config = site.root / "nginx.conf"
        config.write_text(NGINX_CONF.format(root=site.root, port=port, location=location.read_text()))
        address = Address("127.0.0.1", port)
        with site.serving([NGINX, "-c", str(config), "-e", f"{site.root}/nginx.log"], address):
            yield address


def test_the_app_sees_the_same(site: Site) -> None:
    if why := missing.allowed("" if UWSGI else "NOT TESTED BESIDE UWSGI: uwsgi_python3 is not installed"):
        pytest.skip(why)
    assert UWSGI
    before = site.bring("uwsgi/before.ini", {"plugin = python3\n": ""})
    with (
        site.serving([UWSGI, "--ini", str(before)], site.socket) as process,
        nginx(site, site.bring("uwsgi/before.nginx")) as address,
    ):
        there = seen(address)
        with Wire.connect(address) as wire:
            wire.send(request("GET", "/held"))
            assert site.gate.announcement() == "held"
            # Its master serves this once it hears signals, and its workers answer before.
            eventually((site.run / "stats.sock").exists, "uWSGI has started")
            process.send_signal(signal.SIGTERM)
            # `die-on-term` gives up what runs.
            assert wire.response().status == 502
        # It does not always leave by itself then.
        process.kill()
    after = site.bring("uwsgi/after.conf.py")
    with (
        site.serving(site.stanchion(after), site.socket) as process,
        nginx(site, site.bring("uwsgi/after.nginx")) as address,
    ):
        here = seen(address)
        spoofed = seen_of_a_liar(address)
        eventually(lambda: idle_seats(site) == 4 * 2, "there is a seat for each thread")
        site.stopped_by(signal.SIGTERM, process, address)
    assert "spoofed" not in str(spoofed)
    assert (spoofed["SCRIPT_NAME"], spoofed["wsgi.url_scheme"]) == ("", "http")
    # uwsgi_params hands the client's address over, HTTP over a unix socket has none. uWSGI believes what the client
    # says of the scheme, which our nginx does not pass on. And it leaves out a name that is empty.
    assert [one["wsgi.url_scheme"] for one in there] == ["https"] * 2
    scheme = {"wsgi.url_scheme": "http", "HTTP_X_FORWARDED_PROTO": "http"}
    assert [{**one, "REMOTE_ADDR": "", "SCRIPT_NAME": "", **scheme} for one in there] == here


def idle_seats(site: Site) -> int:
    with Wire.connect(Address(path=str(site.run / "stats.sock"))) as wire:
        return [seat["state"] for seat in wire.get("/status").json()["seats"]].count("idle")


def test_the_settings_mean_the_same(site: Site) -> None:
    given = dict(line.split(" = ") for line in site.bring("uwsgi/before.ini").read_text().splitlines() if " = " in line)
    chosen = settings(["stanchion", "serve", "-c", str(site.bring("uwsgi/after.conf.py"))], site.srv)
    for there, here in {
        "processes": "workers",
        "threads": "threads",
        "harakiri": "timeout",
        "max-requests": "max_requests",
        "worker-reload-mercy": "graceful_timeout",
        "buffer-size": "limit_request_field_size",
        "module": "wsgi_app",
        "chdir": "chdir",
        "pidfile": "pidfile",
        "logto": "errorlog",
    }.items():
        assert str(chosen[here]) == given[there]
    assert chosen["max_memory"] == int(given["reload-on-rss"]) << 20
