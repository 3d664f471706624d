"""Early hints (RFC 8297) of a WSGI app, by gunicorn's `wsgi.early_hints`: before the answer, or not at all."""

import subprocess

import pytest

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.greenlets import GEVENT
from support.server import GUNICORN, STANCHION, UNHURRIED, Serve, Server
from support.wire import Headers, Wire, request

pytestmark = pytest.mark.own("gunicorn is started beside it where it can do the same")

HINTS = "--early-hints"
CSS = ("Link", "</a.css>; rel=preload; as=style")
SMALL_BUFFER = ("--bind", "127.0.0.1:0?sndbuf=4608")
THREADS = {"a thread": (), "threads": ("--threads", "4"), "greenlets": GEVENT}
SEVERAL = {name: arguments for name, arguments in THREADS.items() if arguments}


def hints(wire: Wire) -> list[Headers]:
    """All that come before the next answer, whose head is left."""
    came = []
    while (response := wire.head()).status == 103:
        assert response.reason == "Early Hints"
        came.append(response.headers)
    wire.read_body(response)
    came.append([("status", str(response.status)), ("body", response.text)])
    return came


def asked(server: Server, path: str, *fields: str, method: str = "GET", version: str = "1.1") -> list[Headers]:
    with server.connect() as wire:
        wire.send(request(method, path, fields, version=version))
        return hints(wire)


def answered(text: str = "answered", status: int = 200) -> Headers:
    return [("status", str(status)), ("body", text)]


KINDS: dict[str, tuple[Headers | None, str]] = {
    "one": ([CSS], "None"),
    "two": ([CSS, ("X-Other", "é\t1")], "None"),
    "bytes": ([("Link", "</b.js>; rel=preload")], "None"),
    "lists": ([("Link", "</l.js>")], "None"),
    "generator": ([CSS, CSS], "None"),
    "spaces": ([("Link", "</s.css>")], "None"),
    "no value": ([("X-Empty", "")], "None"),
    "a field in a value": (None, "raised Exception"),
    "a line feed": (None, "raised Exception"),
    "a zero": (None, "raised Exception"),
    "a bad name": (None, "raised Exception"),
    "an empty name": (None, "raised Exception"),
    "beyond latin-1": (None, "raised Exception"),
    "a number": (None, "raised Exception"),
    "three": (None, "raised Exception"),
    "not iterable": (None, "raised Exception"),
}
OURS: dict[str, tuple[Headers | None, str]] = {
    "mapping": ([("Link", "</m.css>"), ("X-Other", "2")], "None"),
    "another mapping": ([("Link", "</c.css>")], "None"),
    "of one hop": ([CSS], "None"),
    "nothing": (None, "None"),
}


@pytest.fixture(scope="module", params=[STANCHION, GUNICORN], ids=["stanchion", "gunicorn"])
def both(request: pytest.FixtureRequest, shared_serve: Serve) -> Server:
    return shared_serve("fields:hints", *([HINTS] if request.param is STANCHION else []), kind=request.param)


@pytest.mark.parametrize("hint", KINDS)
def test_each_kind_of_hint_as_gunicorn_has_it(both: Server, hint: str) -> None:
    came, said = KINDS[hint]
    assert asked(both, f"/kinds/{hint}".replace(" ", "%20")) == [*([came] if came else []), answered(said)]


def test_hints_go_to_no_client_of_http_1_0_nor_after_the_head_of_the_answer(both: Server) -> None:
    assert asked(both, "/kinds/one", version="1.0") == [answered("None")]
    # The server does not check hints that it does not send.
    assert asked(both, "/kinds/a%20zero", version="1.0") == [answered("None")]
    assert asked(both, "/late") == [[CSS], answered("been")]
    assert asked(both, "/started") == [[CSS], answered()]


@pytest.fixture(scope="module")
def server(shared_serve: Serve) -> Server:
    return shared_serve("fields:hints", HINTS)


@pytest.mark.parametrize("hint", OURS)
def test_what_else_may_be_given(server: Server, hint: str) -> None:
    came, said = OURS[hint]
    assert asked(server, f"/kinds/{hint}".replace(" ", "%20")) == [*([came] if came else []), answered(said)]


@pytest.mark.parametrize("arguments", THREADS.values(), ids=THREADS)
def test_hints_are_there_before_the_app_goes_on(serve: Serve, gate: Gate, arguments: tuple[str, ...]) -> None:
    server = serve("fields:hints", HINTS, *arguments, env=gate.environment)
    with server.connect() as wire:
        for count in (3, 1):
            wire.send(request("GET", f"/step/{count}"))
            for number in range(count):
                response = wire.head()
                assert (response.status, response.headers) == (103, [("Link", f"</{number}.css>")])
                assert gate.announcement() == "hinted"
                gate.let_pass(1)
            assert wire.response().text == "answered"


@pytest.mark.parametrize("arguments", SEVERAL.values(), ids=SEVERAL)
def test_each_client_gets_its_own_while_others_wait(serve: Serve, gate: Gate, arguments: tuple[str, ...]) -> None:
    server = serve("fields:hints", HINTS, *arguments, env=gate.environment)
    wires = [server.connect() for _ in range(3)]
    for wire in wires:
        wire.send(request("GET", "/hold"))
    gate.announcements(3)
    for wire in wires:
        assert wire.head().headers == [CSS]
        assert wire.silent(0.05)
    assert asked(server, "/release") == [answered()]
    for wire in wires:
        assert wire.response().text == "answered"
        wire.close()


def test_without_the_setting_the_app_may_give_hints_and_no_client_gets_them(serve: Serve) -> None:
    server = serve("fields:hints")
    assert asked(server, "/kinds/one") == [answered("None")]
    assert asked(server, "/late") == [answered("been")]


def test_pipelined_requests_have_their_hints_in_turn(server: Server) -> None:
    with server.connect() as wire:
        wire.send(b"".join(request("GET", path) for path in ("/kinds/one", "/kinds/bytes", "/late", "/none")))
        assert hints(wire) == [[CSS], answered("None")]
        assert hints(wire) == [[("Link", "</b.js>; rel=preload")], answered("None")]
        assert hints(wire) == [[CSS], answered("been")]
        assert hints(wire) == [answered()]


def test_nothing_goes_ahead_of_the_answer_to_head(server: Server) -> None:
    """An nginx that takes a 103 for it would give the answer itself to its next client."""
    with server.connect() as wire:
        response = wire.ask("HEAD", "/kinds/one")
        assert (response.status, response.header("Content-Length")) == (200, "4")
        assert wire.get("/none").text == "answered"


def test_expected_100_comes_first(serve: Serve, gate: Gate) -> None:
    server = serve("fields:hints", HINTS, *UNHURRIED, env=gate.environment)
    with server.connect() as wire:
        wire.send(request("POST", "/step/1", ["Expect: 100-continue", "Content-Length: 4"]))
        assert wire.head().status == 100
        assert not gate.announced()
        wire.send(b"body")
        assert wire.head().status == 103
        gate.let_pass(1)
        assert wire.response().text == "answered"


def test_more_than_may_go_ahead_of_an_answer_are_dropped_and_logged(serve: Serve) -> None:
    server = serve("fields:hints", HINTS)
    with server.connect() as wire:
        for path, most in (("/many/32", 32), ("/many/40", 32), ("/long/15", 15), ("/long/40", 15), ("/many/1", 1)):
            wire.send(request("GET", path))
            came = hints(wire)
            assert (len(came) - 1, came[-1]) == (most, answered()), path
    over = "a request has up to 32, with 3584 bytes each and 16384 in all"
    server.log.wait_for(over, 2)
    assert len(server.log.matches(over)) == 2


def test_only_those_over_a_limit_are_dropped_and_one_warning_names_the_request(serve: Serve) -> None:
    """34 bytes of each are its status line and the name of its field."""
    server = serve("fields:hints", HINTS)
    full = "/3550" * 4
    for path, lengths in (
        ("/sizes/3551/3550/3551/10", [3550, 10]),
        (f"/sizes{full}/2014", [3550] * 4 + [2014]),
        (f"/sizes{full}/2015/3550/10", [3550] * 4 + [10]),
    ):
        *sent, last = asked(server, path)
        assert ([len(link) for [(_, link)] in sent], last) == (lengths, answered()), path
    dropped = r"\[WARNING\] an early hint of the app is dropped at GET (/sizes/\S+)"
    first, second = server.log.wait_for(dropped, 2)
    assert (first[1], second[1]) == ("/sizes/3551/3550/3551/10", f"/sizes{full}/2015/3550/10")
    assert len(server.log.matches("early hint of the app is dropped")) == 2


def test_what_was_kept_hints_at_nothing_later(server: Server) -> None:
    for _ in range(3):
        assert asked(server, "/keep") == [answered()]
        assert asked(server, "/use") == [answered()]


def test_a_failure_after_hints_is_answered_500(serve: Serve) -> None:
    server = serve("fields:hints", HINTS)
    for _ in range(2):
        (first, last) = asked(server, "/fail")
        assert (first, last[0]) == ([CSS], ("status", "500"))


def test_a_worker_that_dies_after_hints_is_answered_for(serve: Serve, counts: Counts) -> None:
    server = serve("fields:hints", HINTS, *counts.arguments)
    with server.connect() as wire:
        wire.send(request("GET", "/die"))
        (first, last) = hints(wire)
        assert (first, last[0]) == ([CSS], ("status", "502"))
        assert wire.get("/none").text == "answered"
    settled = counts.settled()
    assert (settled["arrived"], settled["refused_worker_died"], settled["answered"]) == (2, 1, 1)


def test_a_request_that_is_retried_has_hints_of_both_workers(serve: Serve, counts: Counts) -> None:
    server = serve("fields:hints", HINTS, "--retry-idempotent", *counts.arguments)
    (*before, last) = asked(server, "/die")
    assert (before, last[0]) == ([[CSS]] * 2, ("status", "502"))
    settled = counts.settled()
    assert (settled["arrived"], counts.events()["requests_retried"]) == (1, 1)


def test_hints_are_no_answer_for_the_timeout(serve: Serve, gate: Gate, clock: Clock) -> None:
    server = serve("fields:hints", HINTS, "--timeout", "100", env=gate.environment | clock.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/step/1"))
        hint = wire.head()
        assert (hint.status, hint.headers) == (103, [("Link", "</0.css>")])
        clock.advance(60)
        assert wire.silent(0.1)
        clock.advance(40)
        assert wire.response().status == 504


def test_a_request_with_hints_is_one_line_of_the_access_log(serve: Serve) -> None:
    log = ("--access-logfile", "-", "--access-logformat", "%(r)s %(s)s %(B)s %({link}o)s!")
    server = serve("fields:hints", HINTS, *log)
    with server.connect() as wire:
        for _ in range(2):
            wire.send(request("GET", "/many/3"))
            assert len(hints(wire)) == 4
    server.stdout.wait(r"GET /many/3 HTTP/1.1 200 8 -!")
    asked(server, "/none")
    server.stdout.wait(r"GET /none ")
    assert len(server.stdout.matches(r"GET /many/3 HTTP/1.1 200 8 -!")) == 2


def test_who_has_left_gets_none_and_the_app_is_told(serve: Serve, gate: Gate) -> None:
    log = ("--access-logfile", "-", "--access-logformat", "%(r)s %(s)s")
    server = serve("fields:hints", HINTS, *log, env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/leave"))
        assert gate.announcement() == "runs"
        wire.reset()
    server.stdout.wait("GET /leave HTTP/1.1 499")
    gate.let_pass(1)
    assert gate.announcement() == "raised ClientGone"
    assert asked(server, "/kinds/one") == [[CSS], answered("None")]


def test_a_client_that_does_not_read_has_no_more_of_them_kept_and_what_came_is_whole(serve: Serve, gate: Gate) -> None:
    server = serve("fields:hints", HINTS, "--threads", "2", *SMALL_BUFFER, bind=None, env=gate.environment)
    with Wire(server.address.connect(receive_buffer_bytes=2048)) as wire:
        wire.send(request("GET", "/flood"))
        assert gate.announcement() == "flooded"
        # Another request goes through the acceptor, which has all of them by then.
        assert asked(server, "/none") == [answered()]
        gate.let_pass(1)
        (*came, last) = hints(wire)
    assert last == answered()
    assert 1 <= len(came) < 15
    assert all(fields == [("Link", "x" * 1000)] for fields in came)


def test_hints_before_many_pipelined_answers_are_whole(serve: Serve) -> None:
    """The kernel has room for parts of them only."""
    server = serve("fields:hints", HINTS, *SMALL_BUFFER, bind=None)
    with server.connect() as wire:
        wire.send(b"".join(request("GET", "/long/15") for _ in range(40)))
        all_that_came = []
        for _ in range(40):
            (*came, last) = hints(wire)
            assert last == answered()
            all_that_came += came
        assert 15 <= len(all_that_came) <= 40 * 15
        assert all(fields == [("Link", "x" * 1000)] for fields in all_that_came)


def test_curl_shows_both(server: Server) -> None:
    url = f"http://127.0.0.1:{server.address.port}/kinds/two"
    shown = subprocess.run(["curl", "-si", "--max-time", "10", url], check=True, capture_output=True).stdout
    first, second, body = shown.split(b"\r\n\r\n")
    assert first == b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload; as=style\r\nX-Other: \xe9\t1"
    assert second.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == b"None"
