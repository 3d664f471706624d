"""Children that an app forks and that come back to the server: what the worker has in hand stays the worker's."""

import pytest

from support.server import Serve

pytestmark = pytest.mark.own("it has servers of its own")


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("how", ["/returns", "/exits"])
def test_a_child_that_comes_back_ends_and_answers_no_client(serve: Serve, threads: str, how: str) -> None:
    server = serve("surroundings:forking", "--threads", threads)
    with server.connect() as wire:
        pid = wire.get("/").text
        assert [wire.get(how).text, wire.get("/").text] == [pid, pid]
