"""The page of several hosts in a real browser, on a desktop and on a phone, in light and in dark."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from support.admin import Admin, status
from support.chromium import BROWSER_PATIENCE_S, NEEDS_CHROMIUM
from support.devtools import Tab, tab
from support.patience import eventually
from support.ports import row_of_ports
from support.server import Serve

pytestmark = [pytest.mark.timeout(180), pytest.mark.own("it has top"), NEEDS_CHROMIUM]

DESKTOP, PHONE = (1200, 900), (390, 844)


@pytest.fixture
def kept() -> Iterator[ExitStack]:
    with ExitStack() as kept:
        yield kept


def shown(kept: ExitStack, *hosts: str) -> Tab:
    port = kept.enter_context(row_of_ports(1))
    command = [sys.executable, "-m", "stanchion", "top", "--hosts", ",".join(hosts), "--serve", f"127.0.0.1:{port}"]
    top = kept.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    kept.callback(top.kill)
    assert top.stdout and top.stdout.readline()
    return kept.enter_context(tab(f"http://127.0.0.1:{port}/"))


def rows(page: Tab) -> list[list[str]]:
    script = (
        "[...document.querySelectorAll('#hosts tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    found = page.evaluate(script)
    assert isinstance(found, list)
    return found


def until(page: Tab, script: str) -> None:
    eventually(lambda: page.evaluate(script), script, BROWSER_PATIENCE_S)


def played(kept: ExitStack, **more: object) -> Admin:
    admin = Admin()
    kept.callback(admin.stop)
    admin.says(status(**more))
    return admin


def test_one_table_and_one_line_for_all(kept: ExitStack, serve: Serve) -> None:
    port = kept.enter_context(row_of_ports(1))
    real = f"127.0.0.2:{port}"
    serve("hello:app", "--admin", real, "--threads", "3")
    standing = {"since_s": 12.0, "why": "all 2 seats are busy", "waiting": 4}
    other = played(kept, line={"waiting": 4, "waiting_max": 50}, demand={"seats_wanted_10s": 3.5}, standstill=standing)
    away = f"127.0.0.9:{port}"
    page = shown(kept, real, other.address, away)
    until(page, "document.querySelectorAll('#hosts tbody tr').length == 4 && document.title.startsWith('standing')")
    total, first, second, third = rows(page)
    assert total[:4] == ["all that answer", "2 of 3 ready", "0 of 5", "4"]
    assert first[:4] == [real, "serving", "0 of 3", "0"]
    assert second[:4] == [other.address, "standing", "0 of 2", "4"] and second[8] == "3.5"
    assert third == [away, "silent", *["\N{EN DASH}"] * 9]
    text = page.text()
    assert "standing · 2 of 3 hosts ready" in text and "4 of 2,098" in text
    assert f"{other.address}: all 2 seats are busy. The line has stood for 12.0 s; 4 wait" in text
    assert f"{away}, silent for" in text and "no process listens at" in text
    # The sections of one host are not there.
    assert page.evaluate("document.getElementById('one-host').hidden")
    until(page, "history.length > 1 && history.at(-1).waiting == 4 && history.at(-1).rates")
    assert page.evaluate("history.at(-1).rates.arrived === 0")
    assert page.errors == []


def test_a_host_that_comes_back_is_shown_so(kept: ExitStack) -> None:
    one = played(kept)
    page = shown(kept, one.address)
    until(page, "document.getElementById('state').textContent == 'serving'")
    one.sends(b"", head=b"HTTP/1.1 503 Service Unavailable\r\n")
    until(page, "document.getElementById('state').textContent == '0 of 1 hosts ready'")
    one.says(status())
    until(page, "document.getElementById('state').textContent == 'serving'")


def test_what_a_host_says_is_no_markup(kept: ExitStack) -> None:
    foul = "<script>document.title='foul'</script><b>"
    page = shown(kept, played(kept, version=foul, ready=False, not_ready_because=foul).address)
    until(page, "document.querySelectorAll('#hosts tbody tr').length == 2")
    assert rows(page)[1][10] == foul
    assert page.evaluate("document.title") == "stanchion"
    assert page.evaluate("document.querySelectorAll('#hosts b, #troubles b, #about b').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_fits_a_desktop_and_a_phone_in_light_and_in_dark(size, scheme, kept):
    hosts = [played(kept, line={"waiting": number}).address for number in (1, 2)]
    page = shown(kept, *hosts, "127.0.0.9:1")
    page.emulate(*size, scheme)
    until(page, "document.querySelectorAll('#hosts tbody tr').length == 4")
    assert page.evaluate("innerWidth") == size[0]
    # The table may be wider and is moved within its frame, in which the names of the hosts stay.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("document.getElementById('hosts-section').scrollLeft = 10000")
    assert page.evaluate("document.querySelector('#hosts tbody tr:last-child td').getBoundingClientRect().left >= 0")
    red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (red + green + blue > 600) == (scheme == "light")
    drawn = "document.getElementById('line').getContext('2d').getImageData(0, 0, 300, 100).data.some(byte => byte)"
    assert page.evaluate(drawn)
    assert page.errors == []
