"""Each of the 256 bytes in a path: clients such as curl send more of them than a URI may have.

The app sees what was sent, and neither a log nor a screen is led astray by it. The server refuses bytes that
would end a word or a line for some server, and says how to write them.
"""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.address import Address
from support.counts import Counts
from support.ctl import ctl
from support.gate import Gate
from support.http2 import Talk
from support.patience import PATIENCE_S, eventually
from support.server import Serve, Server
from support.targets import FRAGMENT, PLACES, REFUSED, TAKEN, ask_once, head, seen, seen_by_asgi, target
from support.wire import Wire

own = pytest.mark.own("gunicorn refuses others; tests/http/test_target_table.py has which")

PROTOCOL_ERROR = 1
# The library that reads the frames of HTTP/2 resets a stream for these in a path.
RESET = b"<>`"
# Everything that a log, a terminal or a page could take for its own: among it, as UTF-8, the control sequence
# introducer (ECMA-48 section 8.3.16), a next line, and a mark that turns the direction of text.
FOUL = b"/" + bytes(byte for byte in TAKEN if byte < 0x80 and byte != ord("?")) + "\x9b31m\x85\u202e\u2028".encode()
MARKUP = b'/<script>document.title="foul"</script><b>\\"\xff'


@pytest.fixture(scope="module")
def wsgi(shared_serve: Serve) -> Server:
    return shared_serve("echo:target")


@own
def test_a_wsgi_app_sees_each_byte_that_ends_nothing(wsgi: Server) -> None:
    with wsgi.connect() as wire:
        for byte in TAKEN:
            sent = target(byte, "path")
            wire.send(head(sent))
            response = wire.response()
            assert response.status == 200, (sent, response.body)
            path, _, query = sent.partition(b"?")
            told = seen(response)
            assert (told.raw, told.path, told.query) == (sent, path, query)


@own
def test_an_asgi_app_sees_them_too(shared_serve: Serve) -> None:
    server = shared_serve("echo:target_asgi", "--interface", "asgi")
    with server.connect() as wire:
        for byte in TAKEN:
            sent = target(byte, "path")
            wire.send(head(sent))
            told = seen_by_asgi(wire.response())
            path, _, query = sent.partition(b"?")
            assert (told.raw_path, told.query) == (path, query)
            assert told.path == path.decode("utf-8", "replace").encode()


@own
def test_a_refusal_names_the_byte_and_how_to_write_it(wsgi: Server) -> None:
    for byte in REFUSED:
        response = ask_once(wsgi.address, target(byte, "path"))
        assert response is not None and response.status == 400, byte
        assert response.closes()
        if byte == ord("\n"):  # ends the line
            assert "the request line ends in no version" in response.text
        else:
            assert response.text.rstrip().endswith(f"write it as %{byte:02X}"), response.text


@own
def test_what_the_refusal_says_is_taken(wsgi: Server) -> None:
    with wsgi.connect() as wire:
        for byte in REFUSED:
            wire.send(head(b"/a%%%02Xz" % byte))
            assert seen(wire.response()).path == b"/a%bz" % bytes([byte])


@own
def test_a_fragment_is_cut_off(wsgi: Server) -> None:
    for place in PLACES:
        sent = target(FRAGMENT, place)
        response = ask_once(wsgi.address, sent)
        assert response is not None
        assert seen(response).raw == sent.partition(b"#")[0]


@own
def test_over_http_2_they_are_the_same_but_for_what_its_frames_may_not_hold(serve: Serve) -> None:
    server = serve("echo:target", "--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge")
    taken = [target(byte, "path") for byte in TAKEN if byte < 0x80 and byte not in RESET]
    with Talk(server.address) as talk:
        for sent in [*taken, "/ü?é".encode()]:
            answer = talk.get(sent)
            assert answer.status == 200, (sent, answer)
            assert bytes.fromhex(json.loads(answer.body)["RAW_URI"]) == sent
    # One on each connection, which ends with what is no UTF-8 or no text of a field.
    for byte in (*RESET, 0x80, 0xFF, *REFUSED):
        with Talk(server.address) as talk:
            answer = talk.answers[talk.begin(target(byte, "path"))]
            with contextlib.suppress(ConnectionAbortedError, ConnectionResetError):
                talk.until(lambda answer=answer: answer.is_over or answer.reset is not None)  # type: ignore[misc]
            assert answer.status == 0
            assert answer.reset == PROTOCOL_ERROR or byte in (0x80, 0xFF, *REFUSED), byte


# ---- Logs, screens, pages


@own
def test_a_line_of_the_access_log_stays_one_line_of_ascii(serve: Serve, tmp_path: Path) -> None:
    log = tmp_path / "access"
    server = serve("echo:target", "--access-logfile", str(log), "--access-logformat", "%(r)s | %(U)s | %(q)s")
    sent = [target(byte, place) for byte in TAKEN for place in PLACES] + [FOUL, MARKUP]
    lines = logged(server, sent, log)
    for target_sent, line in zip(sent, lines, strict=True):
        assert line.isascii() and line.isprintable(), line
        assert line.startswith(f"GET {escaped(target_sent)} HTTP/1.1 | "), line


@own
def test_a_line_of_json_says_what_was_sent(serve: Serve, tmp_path: Path) -> None:
    log = tmp_path / "access"
    server = serve("echo:target", "--access-logfile", str(log), "--access-log-json")
    sent = [target(byte, place) for byte in TAKEN for place in PLACES] + [FOUL, MARKUP]
    for target_sent, line in zip(sent, logged(server, sent, log), strict=True):
        assert line.isprintable(), line
        told = json.loads(line)
        path, _, query = target_sent.partition(b"?")
        assert (told["path"], told["query"] or "") == (in_json(path), in_json(query))


def logged(server: Server, sent: list[bytes], log: Path) -> list[str]:
    with server.connect() as wire:
        for one in sent:
            wire.send(head(one))
            assert wire.response().status == 200, one
    lines: Callable[[], list[str]] = lambda: log.read_text().splitlines() if log.exists() else []  # noqa: E731
    eventually(lambda: len(lines()) >= len(sent), "all requests are in the log")
    # Line feeds alone give the same count: the log has no other character that a reader may take for a line's end.
    assert log.read_text().count("\n") == len(sent)
    return lines()


def escaped(sent: bytes) -> str:
    """The bytes escaped as docs/logs.md says."""
    plain = sent.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in plain)


def in_json(sent: bytes) -> str:
    return sent.decode("utf-8", "backslashreplace")


@own
def test_the_error_log_and_what_operators_look_at_show_it_harmlessly(
    serve: Serve, gate: Gate, counts: Counts, tmp_path: Path
) -> None:
    admin = tmp_path / "admin"
    limits = ("-w", "2", "--max-waiting", "1", "--timeout", "0")
    server = serve("echo:target", *limits, "--admin", f"unix:{admin}", *counts.arguments, env=gate.environment)
    wires = [server.connect() for _ in range(8)]
    held, others = wires[:2], wires[2:]
    for wire, sent in zip(held, (FOUL, MARKUP), strict=True):
        wire.send(head(sent, b"X-Hold: 1"))
    gate.announcements(2)
    for wire in others:
        wire.send(head(FOUL, b"X-Raise: 1"))
    server.log.wait(r"the line stands: \d+ wait")
    with Wire.connect(Address.parse(f"unix:{admin}")) as wire:
        told = wire.get("/status")
    seats = told.json()["seats"]
    assert {seat["path"] for seat in seats} == {one.decode("utf-8", "replace") for one in (FOUL, MARKUP)}
    assert FOUL.decode() in told.json()["standstill"]["why"]
    assert_harmless(words_of(top(f"unix:{admin}")))
    for command in ("status", "workers", "dump"):
        assert_harmless(words_of(ctl(counts.path, command)))
    gate.let_pass(2)
    assert [wire.response().status for wire in held] == [200, 200]
    assert {wire.response().status for wire in others} == {500, 503}
    held[0].send(head(MARKUP, b"X-Die: 1"))
    assert held[0].response().status == 502
    for wire in wires:
        wire.close()
    server.log.wait(re.escape(escaped(FOUL)))
    server.log.wait(re.escape(escaped(MARKUP)))
    assert_harmless(server.log.text())


def top(admin: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stanchion", "top", "--once", "--admin", admin]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def words_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def assert_harmless(text: str) -> None:
    for character in "\x1b\x9b\x85\u202e\u2028":
        assert character not in text, f"{character!a} in {text!a}"
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), ascii(text)
