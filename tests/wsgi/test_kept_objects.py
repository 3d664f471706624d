"""A worker uses what it gave its app once more, unless the app keeps it: that stays with the request that is over."""

import pytest

from support.server import Serve, Server


@pytest.fixture(scope="module")
def keeping(shared_serve: Serve) -> Server:
    return shared_serve("keeping:app", "--early-hints")


@pytest.mark.parametrize(
    ("name", "came_of_it"),
    [
        ("environ", True),
        ("start_response", "start_response was called already"),
        ("response", True),
        ("write", None),
        ("client_gone", True),
        ("extend_deadline", None),
        ("early_hints", None),
        ("input", ""),
    ],
)
def test_what_an_app_has_kept_has_no_part_in_a_later_request(keeping: Server, name: str, came_of_it: object) -> None:
    with keeping.connect() as wire:
        for _ in range(3):
            assert wire.get(f"/keep/{name}").body == b"kept"
            response = wire.get(f"/use/{name}")
            assert (response.status, response.header("X-By")) == (200, "itself")
            assert response.json() == {"is_same": False, "came_of_it": came_of_it}


@pytest.mark.parametrize("name", ["start_response", "write", "client_gone", "extend_deadline", "early_hints"])
def test_a_note_on_something_of_one_request_is_not_found_in_the_next(keeping: Server, name: str) -> None:
    """An app that keeps it in a WeakKeyDictionary holds no counted reference."""
    with keeping.connect() as wire:
        for _ in range(3):
            assert wire.get(f"/note/{name}").body == b"noted"
            assert wire.get(f"/look/{name}").json() is None
