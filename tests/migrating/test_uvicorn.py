"""docs/migrating/from-uvicorn.md: the same command lines, the same for the app."""

import signal
from typing import Any

import pytest

from support.address import Address
from support.ports import row_of_ports
from support.site import Site
from support.wire import Wire

pytestmark = pytest.mark.own("the example is for stanchion")

FIELDS = ("Cookie: a=b", "X-Forwarded-Proto: https", "X-Forwarded-For: 6.6.6.6, 10.1.2.3")


def seen(address: Address) -> list[dict[str, Any]]:
    """What the app finds in its scope, of two requests, the second with a body; and of one that nobody forwards."""
    found = []
    for ask in (
        lambda wire: wire.get("/a%20b/c?d=%2F&e", *FIELDS),
        lambda wire: wire.post("/p", b"x" * 100_000, "Content-Type: application/x-test", *FIELDS),
    ):
        with Wire.connect(address) as wire:
            response = ask(wire)
        assert response.status == 200, response.body
        found.append(response.json())
    return found


def test_the_app_sees_the_same(site: Site) -> None:
    with row_of_ports(1) as port:
        address = Address("127.0.0.1", port)
        found = []
        for name in ("uvicorn/before.sh", "uvicorn/after.sh"):
            script = site.bring(name, {"8000": str(port)})
            with site.serving(["sh", str(script)], address) as process:
                found.append(seen(address))
                if name == "uvicorn/after.sh":
                    site.stopped_by(signal.SIGTERM, process, address)
    before, after = found
    assert before[0]["client"] == repr(("10.1.2.3", 0))
    assert before[0]["path"] == "'/api/a b/c'"
    assert before == after


def test_the_config_of_gunicorn_with_uvicorns_workers(site: Site) -> None:
    with row_of_ports(1) as port:
        address = Address("127.0.0.1", port)
        config = site.bring("uvicorn/gunicorn.conf.py", {"8000": str(port)})
        with site.serving(site.stanchion(config), address) as process:
            assert seen(address)[1]["state"] == "{'started': True}"
            site.stopped_by(signal.SIGTERM, process, address)
