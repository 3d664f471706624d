"""docs/migrating/from-others.md: a real Apache with mod_wsgi, and then as a proxy, shows the app the same."""

import contextlib
import os
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import missing
from support.address import Address
from support.example import settings
from support.ports import row_of_ports
from support.site import Site, seen, seen_of_a_liar

APACHE = shutil.which("apache2", path="/usr/sbin:/sbin:/usr/bin:/bin")
MODULES = Path("/usr/lib/apache2/modules")
NEEDED = ("mod_wsgi.so", "mod_proxy_http.so", "mod_headers.so")


def not_here() -> str:
    if os.geteuid() != 0:
        return "needs root, as Apache starts"
    if not any(user.pw_name == "www-data" for user in pwd.getpwall()):
        return "there is no user www-data"
    there = APACHE and all((MODULES / module).exists() for module in NEEDED)
    return "" if there else "Apache and mod_wsgi are not installed"


pytestmark = [
    pytest.mark.own("the example is for stanchion"),
    pytest.mark.skipif(bool(missing.allowed(not_here())), reason=f"NOT TESTED BESIDE APACHE: {not_here()}"),
]

MAIN = """\
ServerRoot {root}
ServerName shop
Listen 127.0.0.1:{port}
PidFile {root}/apache.pid
ErrorLog {root}/log/apache.log
DefaultRuntimeDir {root}
Mutex file:{root}
User www-data
Group www-data
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule headers_module {modules}/mod_headers.so
"""
WSGI = "LoadModule wsgi_module {modules}/mod_wsgi.so\nWSGISocketPrefix {root}/wsgi\n"
PROXY = "LoadModule proxy_module {modules}/mod_proxy.so\nLoadModule proxy_http_module {modules}/mod_proxy_http.so\n"


@contextlib.contextmanager
def apache(site: Site, modules: str, part: Path) -> Iterator[Address]:
    assert APACHE
    with row_of_ports(1) as port:
        config = site.root / "apache.conf"
        text = (MAIN + modules).format(root=site.root, port=port, modules=MODULES)
        config.write_text(text + part.read_text())
        address = Address("127.0.0.1", port)
        with site.serving([APACHE, "-D", "FOREGROUND", "-f", str(config)], address):
            yield address
        print((site.log / "apache.log").read_text())


@pytest.mark.parametrize("mount", ["", "/shop"])
def test_the_app_sees_the_same(site: Site, mount: str) -> None:
    """The app is mounted at the root, as in the files, and below a path, as the page says."""
    (site.srv / "wsgi.py").write_text("from shop import app as application\n")
    # The server under test and Debian's Apache may have different Pythons.
    python = {"python-home=/srv/shop/.venv": "python-home=/usr"}
    before = site.bring("mod_wsgi/before.conf", {**python, "WSGIScriptAlias / ": f"WSGIScriptAlias {mount or '/'} "})
    with apache(site, WSGI, before) as address:
        there = seen(address, mount)
    after = site.bring("mod_wsgi/after.conf.py")
    after.write_text(f"{after.read_text()}root_path = '{mount}'\n")
    proxy = {'ProxyPass "/"': f'ProxyPass "{mount or "/"}"', "http://shop/": f"http://shop{mount or '/'}"}
    with (
        site.serving(site.stanchion(after), site.socket),
        apache(site, PROXY, site.bring("mod_wsgi/after.conf", proxy)) as address,
    ):
        here = seen(address, mount)
        spoofed = seen_of_a_liar(address, mount)
    assert "spoofed" not in str(spoofed)
    assert (spoofed["SCRIPT_NAME"], spoofed["wsgi.url_scheme"]) == (mount, "http")
    assert [one["SCRIPT_NAME"] for one in there] == [mount] * 2
    # mod_wsgi hands the client's address over, HTTP over a unix socket has none. The proxy says which scheme it is.
    assert [{**one, "REMOTE_ADDR": "", "HTTP_X_FORWARDED_PROTO": "http"} for one in there] == here


def test_the_settings_mean_the_same(site: Site) -> None:
    text = site.bring("mod_wsgi/before.conf").read_text().replace("\\\n", " ")
    given = dict(word.split("=", 1) for word in text.splitlines()[0].split() if "=" in word)
    chosen = settings(["stanchion", "serve", "-c", str(site.bring("mod_wsgi/after.conf.py"))], site.srv)
    for there, here in {
        "processes": "workers",
        "threads": "threads",
        "python-path": "chdir",
        "maximum-requests": "max_requests",
        "request-timeout": "timeout",
        "graceful-timeout": "graceful_timeout",
        "queue-timeout": "queue_timeout",
        "listen-backlog": "backlog",
    }.items():
        assert str(chosen[here]) == given[there]
