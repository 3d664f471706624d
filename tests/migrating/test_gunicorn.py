"""The config files of docs/migrating/from-gunicorn.md under gunicorn and under stanchion: the app sees the same."""

import re
import signal

import pytest

from support.address import Address
from support.example import SCRIPTS
from support.patience import eventually
from support.ports import row_of_ports
from support.site import Site, seen

pytestmark = pytest.mark.own("stanchion beside gunicorn")

GUNICORN = [str(SCRIPTS / "gunicorn"), "--no-control-socket"]


def test_sync_workers(site: Site) -> None:
    config = site.bring("gunicorn/sync.conf.py")
    with site.serving([*GUNICORN, "-c", str(config)], site.socket) as process:
        before = seen(site.socket)
        site.stopped_by(signal.SIGTERM, process, site.socket)
    logged = (site.log / "access.log").read_text()
    for log in site.log.iterdir():
        log.unlink()
    with site.serving(site.stanchion(config), site.socket) as process:
        assert seen(site.socket) == before
        assert int((site.run / "shop.pid").read_text()) == process.pid
        site.stopped_by(signal.SIGTERM, process, site.socket)
    eventually(lambda: not (site.run / "shop.pid").exists(), "the pid file goes")
    assert shapes((site.log / "access.log").read_text()) == shapes(logged)
    errors = (site.log / "error.log").read_text()
    assert len(re.findall(r"worker \d+ begins", errors)) == len(re.findall(r"worker \d+ has ended", errors)) == 4
    assert not (site.srv / "output").read_text(), "nothing is warned of before there is a log"
    assert "WARNING" not in errors.replace("[WARNING] the app runs as root", "")


def shapes(log: str) -> list[str]:
    """The request lines and statuses. Where there is no address gunicorn writes nothing, and we write `-`."""
    lines = [re.sub(r"^-? - - \[[^]]+\] | \d+ (?=\"-\")", "", line) for line in log.splitlines()]
    assert len(lines) == 3
    return lines


def test_threads(site: Site) -> None:
    with row_of_ports(1) as port:
        config = site.bring("gunicorn/gthread.conf.py", {"127.0.0.1:8000": f"127.0.0.1:{port}"})
        address = Address("127.0.0.1", port)
        with site.serving([*GUNICORN, "-c", str(config)], address) as process:
            before = seen(address)
            site.stopped_by(signal.SIGTERM, process, address)
        with site.serving(site.stanchion(config), address) as process:
            assert seen(address) == before
            site.stopped_by(signal.SIGTERM, process, address)
    assert before[0]["wsgi.url_scheme"] == "https"
    assert before[0]["wsgi.multithread"]
