"""An app while it has a request: it receives and sends in all ways, is cancelled, raises, goes on."""

import json
from collections.abc import Iterator

import pytest

from asgi.conftest import ServeAsgi
from support.asgi import Flavour
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.wire import BrokenOff, chunked, request

pytestmark = pytest.mark.own("it has servers of its own")


@pytest.fixture(scope="module")
def shared_gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    gate = Gate(tmp_path_factory.mktemp("asgi") / "gate")
    yield gate
    gate.close()


@pytest.fixture(scope="module", params=["asgi_cases:app", "asgi_cases:plain"])
def served(request: pytest.FixtureRequest, flavour: Flavour, shared_serve: Serve, shared_gate: Gate) -> Server:
    """Servers of the app as a coroutine function, and as a function that returns an awaitable."""
    return flavour.serve(shared_serve, request.param, "--lifespan", "off", env=shared_gate.environment)


def posted(server: Server, path: str, body: bytes = b"body") -> object:
    with server.connect() as wire:
        return wire.post(path, body).json()


def seen(server: Server, count: int) -> list[object]:
    """The app's notes, once there are `count`."""
    noted: list[object] = []

    def enough() -> bool:
        with server.connect() as wire:
            noted.extend(wire.get("/seen").json())
        return len(noted) >= count

    eventually(enough, f"{count} notes of the app")
    return noted


def test_a_body_comes_in_pieces_and_whole(served: Server) -> None:
    body = bytes(range(256)) * 4000
    with served.connect() as wire:
        assert wire.post("/digest", body).text.encode() == json.dumps(body.decode("latin-1")).encode()
        events = wire.post("/received", body).json()
        assert sum(length for _, length, _ in events) == len(body)
        assert {kind for kind, _, _ in events} == {"http.request"}
        assert [more for _, _, more in events] == [True] * (len(events) - 1) + [False]
        wire.send(request("POST", "/digest", ["Transfer-Encoding: chunked"]) + chunked([b"one, ", b"two"]))
        assert wire.response().json() == "one, two"


def test_an_empty_body_is_one_empty_piece(served: Server) -> None:
    with served.connect() as wire:
        assert wire.get("/received").json() == [["http.request", 0, False]]


def test_after_the_body_an_app_waits_for_as_long_as_it_likes(served: Server) -> None:
    assert posted(served, "/after_the_body") == ["body", "TimeoutError", "TimeoutError", "TimeoutError"]


@pytest.mark.parametrize(("path", "count"), [("/after_the_answer", 2), ("/before_reading", 1)])
def test_after_the_answer_the_client_counts_as_gone(served: Server, path: str, count: int) -> None:
    with served.connect() as wire:
        assert wire.post(path, b"body").status == 200
        assert seen(served, count) == [{"type": "http.disconnect"}] * count
        assert wire.get("/received").status == 200


def test_two_that_wait_at_once_do_not_get_the_same(served: Server) -> None:
    assert posted(served, "/twice_at_once") == ["body", "waits"]


def test_who_is_cancelled_before_it_begins_has_taken_nothing(served: Server) -> None:
    assert posted(served, "/cancelled_before_it_begins") == ["CancelledError", "body"]


def test_what_is_not_awaited_does_nothing(served: Server) -> None:
    with served.connect() as wire:
        response = wire.post("/not_awaited", b"body")
        assert (response.status, response.json()) == (200, "body")


def test_receive_and_send_in_task_groups(served: Server) -> None:
    with served.connect() as wire:
        assert wire.post("/in_task_groups", b"body").text == "body timed out"


def test_receive_and_send_are_called_in_another_thread(served: Server) -> None:
    with served.connect() as wire:
        assert wire.post("/of_a_thread", b"body").text == "body" * 3


def test_pieces_of_many_tasks_come_whole(served: Server) -> None:
    with served.connect() as wire:
        body = wire.get("/of_many_tasks").text
    assert "".join(sorted(body)) == "".join(letter * 300_000 for letter in "abcde")
    assert [body[at] for at in range(0, len(body), 300_000)] == list(dict.fromkeys(body))


def test_who_gives_up_waiting_for_room_loses_nothing(served: Server, flavour: Flavour, shared_gate: Gate) -> None:
    with served.connect() as wire:
        wire.send(request("GET", "/send_given_up"))
        assert shared_gate.announcement() == "given up"
        assert wire.response().text == "a" * 30_000_000 + "b" * 10
    # uvicorn takes what it is given, and has the next one wait.
    assert seen(served, 1) == (["TimeoutError"] if flavour.is_ours else [None])


def test_a_client_gets_what_a_child_sends_after_the_request_has_returned(served: Server, shared_gate: Gate) -> None:
    with served.connect() as wire:
        wire.send(request("GET", "/left_to_a_child"))
        assert shared_gate.announcement() == "returned"
        assert wire.response().text == "c" * 30_000_000
        assert wire.get("/received").status == 200


def test_a_child_that_is_late_is_told_so(served: Server, flavour: Flavour, shared_gate: Gate) -> None:
    with served.connect() as wire:
        wire.send(request("GET", "/child_that_is_late"))
        assert shared_gate.announcement() == "returned"
        with pytest.raises((BrokenOff, ConnectionResetError)):
            wire.response()
    told = seen(served, 1)
    if flavour.is_ours:
        assert told == ["ClientGone"]


def test_a_client_that_leaves_is_heard_and_written_to_in_vain(
    served: Server, flavour: Flavour, shared_gate: Gate
) -> None:
    lines = len(served.log.lines())
    with served.connect() as wire:
        wire.send(request("POST", "/gone", body=b"body"))
        assert shared_gate.announcement() == "waits"
    assert shared_gate.announcement() == "over"
    events = seen(served, 3)
    assert events == [{"type": "http.disconnect"}, "sent", "sent"]
    if flavour.is_ours:
        # A client that leaves is no fault of the app's: nothing is logged.
        assert not [line for line in served.log.lines()[lines:] if "Traceback" in line or "RuntimeError" in line]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_app_may_say_more_than_its_client_is_to_have(served: Server, shared_gate: Gate, method: str) -> None:
    """The client has all that Content-Length says, or the head it has asked for, and is let go: it has not left."""
    with served.connect() as wire:
        wire.send(request(method, "/beyond"))
        assert wire.response(method).header("Content-Length") == "4"
        shared_gate.let_pass(1)
        assert seen(served, 1) == [[None] * 4]


def test_who_goes_on_for_ever_about_a_head_is_told_to_stop(served: Server, flavour: Flavour) -> None:
    if not flavour.is_ours:
        pytest.skip("uvicorn waits for the client to leave")
    with served.connect() as wire:
        wire.send(request("HEAD", "/endless"))
        assert wire.response("HEAD").status == 200
        assert seen(served, 1) == [16 * 1024 + 1]


def test_a_request_that_cancels_itself(served: Server) -> None:
    with served.connect() as wire:
        assert wire.get("/cancels_itself").status == 500
    with served.connect() as wire:
        assert wire.get("/received").status == 200


@pytest.mark.parametrize("what", ["odd", "now"])
def test_what_an_app_raises_at_once_is_a_500(served: Server, what: str) -> None:
    with served.connect() as wire:
        assert wire.get(f"/raises?{what}").status == 500
    with served.connect() as wire:
        assert wire.get("/received").status == 200


def test_what_an_app_raises_halfway_breaks_the_answer_off(served: Server) -> None:
    with served.connect() as wire:
        wire.send(request("GET", "/raises?halfway"))
        assert wire.torn_response().body == b"half"
    served.log.wait("raised halfway")


def test_what_an_app_raises_after_its_answer_is_logged(served: Server, flavour: Flavour) -> None:
    with served.connect() as wire:
        assert wire.get("/raises?late").json() == "whole"
        served.log.wait("raised after the answer")
        if flavour.is_ours:  # uvicorn closes the connection
            served.log.wait(r"the app failed at GET /raises\?late request_id=")
            assert wire.get("/received").status == 200


def test_an_app_goes_on_after_its_answer(served: Server, shared_gate: Gate) -> None:
    with served.connect() as wire:
        assert wire.get("/background").json() == "whole"
        assert shared_gate.announcement() == "answered"
        assert wire.get("/release").json() == "released"
        assert shared_gate.announcement() == "done"


def test_each_request_has_a_context_of_its_own(served: Server) -> None:
    with served.connect() as wire:
        assert [wire.get("/context").json() for _ in range(3)] == [wire.get("/context").json()] * 3


@pytest.mark.parametrize("what", ["exit", "interrupt"])
def test_an_app_that_asks_to_exit_has_its_worker_replaced(serve: Serve, flavour: Flavour, what: str) -> None:
    if not flavour.is_ours:
        pytest.skip("the server itself leaves")
    server = flavour.serve(serve, "asgi_cases:app", "--lifespan", "off")
    with server.connect() as wire:
        assert wire.get(f"/raises?{what}").status == 500
        server.log.wait("the app asked to exit")
        assert wire.get("/received").status == 200


def test_what_runs_is_answered_when_the_app_stops_the_loop(serve_asgi: ServeAsgi, gate: Gate) -> None:
    server = serve_asgi("looping:app", env=gate.environment)
    with server.connect() as waiting, server.connect() as wire:
        waiting.send(request("GET", "/pass"))
        pid = gate.announcement().split()[0]
        assert wire.get("/stop").text == pid
        server.log.wait("the app stopped the event loop: the worker leaves")
        gate.let_pass(1)
        assert waiting.response().text == pid
        assert wire.get("/").text != pid
