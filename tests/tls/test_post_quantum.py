"""Keys are exchanged by X25519MLKEM768 with clients that know it: here with a browser, which asks for it first."""

from pathlib import Path

import pytest

from support.chromium import NEEDS_CHROMIUM, browser
from support.counts import Counts
from support.patience import eventually
from support.server import Serve
from support.tls import Authority, Pair, connect

pytestmark = pytest.mark.own("other servers leave it to OpenSSL")


@NEEDS_CHROMIUM
def test_a_browser_and_the_server_agree_on_it(serve: Serve, authority: Authority, pair: Pair, tmp_path: Path) -> None:
    counts = Counts(tmp_path / "control")
    server = serve("hello:app", *pair.arguments(), *counts.arguments)
    # Python's client has an OpenSSL that does not know it.
    with connect(server.address, authority.context()) as wire:
        assert wire.get("/").status == 200
    assert counts.events()["tls_handshakes_post_quantum"] == 0
    with browser(f"https://127.0.0.1:{server.address.port}/", "ignore-certificate-errors"):
        eventually(lambda: counts.events()["tls_handshakes_post_quantum"] > 0, "the browser has exchanged keys", 60)
