"""docs/migrating/from-others.md: the same command lines, the same for the app."""

import pytest

from support.address import Address
from support.ports import row_of_ports
from support.site import Site, seen

pytestmark = pytest.mark.own("the example is for stanchion")


def test_the_app_sees_the_same(site: Site) -> None:
    with row_of_ports(1) as port:
        address = Address("127.0.0.1", port)
        found = []
        for name in ("waitress/before.sh", "waitress/after.sh"):
            script = site.bring(name, {"127.0.0.1:8000": f"127.0.0.1:{port}"})
            with site.serving(["sh", str(script)], address):
                found.append(seen(address, "/shop"))
    before, after = found
    assert before[0]["SCRIPT_NAME"] == "/shop"
    assert before == after
