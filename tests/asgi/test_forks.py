"""Children that an app forks and that come back to its event loop: what the worker has in hand stays the worker's."""

import pytest

from asgi.conftest import ServeAsgi
from support.counts import Counts
from support.patience import eventually
from support.websocket import Open, sessions

pytestmark = pytest.mark.own("uvicorn's children share its sockets")

CODES = {"/returns": 0, "/raises": 1, "/cancelled": 1, "/exits": 3, "/waits": 0}
MANY = 100


@pytest.mark.parametrize("when", ["now", "later"])
@pytest.mark.parametrize("how", CODES)
def test_a_child_that_comes_back_to_the_loop_ends_and_harms_no_request(
    serve_asgi: ServeAsgi, counts: Counts, opens: Open, how: str, when: str
) -> None:
    server = serve_asgi("forking:app", "--lifespan", "off", *counts.arguments)
    client = opens(server)
    with server.connect() as wire:
        said = wire.get(f"{how}?{when}").json()
        assert said["code"] == CODES[how]
        server.log.wait("a process that the app has forked comes back to the event loop of its worker, and ends")
        assert ("ValueError: in the child" in server.log.text()) is (how == "/raises")
        assert "the child was here" in server.stdout.text()
        # The loop is still woken: its heartbeats alone would have it answer four requests a second.
        wire.get("/timer")
        for _ in range(MANY):
            assert wire.get("/").json() == {"pid": said["pid"]}
        assert wire.get("/rings").json()["rings"] is False
    client.text("still here")
    assert client.hear() == "still here"
    client.close()
    assert client.until_end() == [(1000, "")]
    eventually(lambda: sessions(counts) == {"begun": 1, "closed_by_client": 1}, "it is counted")
    assert counts.settled()["answered"] == MANY + 4


def test_a_child_that_cannot_start_up_ends_and_its_parent_serves(serve_asgi: ServeAsgi) -> None:
    server = serve_asgi("forking:at_startup")
    with server.connect() as wire:
        assert wire.get("/").text == "1"
    assert "a process that the app has forked comes back to the event loop" in server.log.text()
