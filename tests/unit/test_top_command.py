"""`stanchion top` against an admin listener that a test plays: where it looks, what it prints, how it ends."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stanchion.cli import main
from stanchion.top import found, looker, source
from stanchion.top.status import Seat
from support.admin import Admin, seat, status
from support.patience import PATIENCE_S

ONCE = ("--once", "--interval", "0.1")


@pytest.fixture
def path() -> Iterator[Path]:
    """Short, as a path of a socket must be (unix(7))."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory, "admin")


@pytest.fixture(params=["tcp", "unix"])
def admin(request: pytest.FixtureRequest, path: Path) -> Iterator[Admin]:
    admin = Admin(path if request.param == "unix" else None)
    yield admin
    admin.stop()


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STANCHION_ADMIN", "STANCHION_CONTROL", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_one_screen_in_plain_text(admin, capsys):
    admin.says(status(seats=[seat(4, 0, 1_000, "/\x1b]0;title\x07")]))
    assert main(["top", "--admin", admin.address, *ONCE]) == 0
    shown = capsys.readouterr().out
    assert "stanchion 0.1.0 · serving" in shown
    assert "GET /\\x1b]0;title\\x07" in shown
    assert "\x1b" not in shown
    assert admin.targets == ["/status", "/status"]


def test_json_is_what_came(admin, capsys):
    data = status(new="\x1b é")
    admin.says(data)
    assert main(["top", "--admin", admin.address, "--json", "--once"]) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown) == data
    assert shown.isascii() and shown.count("\n") == 1
    assert admin.targets == ["/status"]


def stanchion(*words: str) -> list[str]:
    return [sys.executable, "-m", "stanchion", "top", *words]


def test_json_goes_on_until_its_reader_has_left_and_says_when_the_server_is_away(admin):
    command = stanchion("--admin", admin.address, "--json", "--interval", "0.1")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        assert [json.loads(process.stdout.readline())["pid"] for _ in range(3)] == [100] * 3
        admin.sends(b"busy", head=b"HTTP/1.1 503 Service Unavailable\r\n")
        assert "answers 503 to /status" in process.stderr.readline()
        admin.says(status(pid=77))
        while json.loads(process.stdout.readline())["pid"] != 77:
            pass
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr.read() == ""


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"


def test_an_answer_may_come_in_chunks(admin):
    admin.sends(b"2\r\n{}\r\n0\r\n\r\n", head=CHUNKED)
    assert source.status(source.place(admin.address)) == {}


@pytest.mark.parametrize(
    ("body", "head", "reason"),
    [
        (b"{", None, "is no JSON"),
        (b"\xff", None, "is no JSON"),
        (b'{"pid": NaN}', None, "is no JSON: NaN is no number"),
        (b"[" * 100_000, None, "is no JSON"),
        (b'{"pid": ' + b"9" * 5_000 + b"}", None, "is no JSON"),
        (b"[]", None, "answers otherwise than this version expects (the answer is no object)"),
        (b"", b"HTTP/1.1 404 Not Found\r\n", "answers 404 to /status: is it the `admin` of a stanchion?"),
        (b"", b"220 mail.example ESMTP\r\n", "is no admin listener"),
        (b"{}", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", "is no admin listener: IncompleteRead"),
        (b"zz\r\n", CHUNKED, "is no admin listener"),
    ],
)
def test_whatever_else_comes_is_no_look(body, head, reason, admin, capsys):
    admin.sends(body, head)
    assert main(["top", "--admin", admin.address, *ONCE]) == 1
    shown = capsys.readouterr()
    assert reason in shown.err and shown.out == ""


def test_an_answer_without_end_is_cut(admin, capsys, monkeypatch):
    monkeypatch.setattr(source, "ANSWER_BYTES_MAX", 1_000)
    admin.sends(b" " * 1_000 + b"{}")
    assert main(["top", "--admin", admin.address, *ONCE]) == 1
    assert "is longer than 1000 bytes" in capsys.readouterr().err


def test_it_does_not_wait_without_end(path):
    silent = Admin(path)
    silent.hold()
    with pytest.raises(source.Failed, match=r"no whole answer from \S+ within 0.2 s"):
        source.get(source.place(silent.address), "/status", 0.2, 1_000)
    silent.stop()


def test_the_one_server_of_this_host_is_found_by_its_command_line(admin, capsys, monkeypatch, tmp_path):
    admin.says(status())
    proc = tmp_path / "proc"

    def process(pid: int, *words: str) -> None:
        home = proc / str(pid)
        (home / "fd").mkdir(parents=True)
        (home / "cwd").symlink_to(tmp_path)
        (home / "comm").write_text(words[0])
        (home / "cmdline").write_text("".join(f"{word}\0" for word in words))
        (home / "environ").write_text("")

    only = found.only
    monkeypatch.setattr(found, "only", lambda parse: only(parse, proc))
    process(7, "nginx", "-g", "daemon off;")
    process(8, "stanchion", "serve", "shop:app")
    assert main(["top", *ONCE]) == 2
    assert "None on this host shows an admin listener" in capsys.readouterr().err
    process(9, "stanchion", "serve", "--admin", admin.address, "shop:app")
    process(10, "stanchion: worker 0 of shop:app")
    assert main(["top", *ONCE]) == 0
    assert "stanchion 0.1.0 · serving" in capsys.readouterr().out
    process(11, "python3", "-m", "stanchion", "serve", "--admin=unix:a", "shop:app")
    assert main(["top", *ONCE]) == 2
    said = capsys.readouterr().err
    assert f"--admin {admin.address} (process 9), --admin unix:{tmp_path}/a (process 11)" in said


def test_no_server_there_ends_with_3(path, capsys):
    assert main(["top", "--admin", f"unix:{path}", *ONCE]) == 3
    assert main(["top", "--admin", f"unix:{path}", "--json", "--once"]) == 3
    assert "no process listens at unix:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "where is the server?"),
        (["--admin", "8299"], "is written HOST:PORT or unix:PATH, not '8299'"),
        (["--admin", "host:0"], "is written HOST:PORT"),
        (["--admin", "host:65536"], "is written HOST:PORT"),
        (["--admin", "::1:8299"], "is written HOST:PORT"),
        (["--admin", "http://host:1"], "is written HOST:PORT"),
        (["--admin", "unix:"], "names no unix socket"),
        (["--interval", "0"], "expected seconds between 0.1 and 3600, got '0'"),
        (["--interval", "nan"], "expected seconds"),
        (["--interval", "x"], "invalid _interval value: 'x'"),
        (["now"], "unrecognized arguments: now"),
        (["--hosts", "a:1", "--admin", "a:1"], "--hosts is for several servers"),
        (["--hosts", "a:1", "--any"], "--any looks at the host"),
        (["--hosts", ""], "--hosts takes 1 to 256 addresses"),
        (["--hosts", "a"], "is written HOST:PORT or unix:PATH, not 'a'"),
        (["--serve"], "--serve needs --hosts"),
        (["--hosts", "a:1", "--serve", "--once"], "--once and --json have no effect there"),
        (["--hosts", "a:1", "--serve", "9200"], "--serve listens at HOST:PORT, not at '9200'"),
        (["--hosts", "a:1", "--serve", "unix:x"], "--serve listens at HOST:PORT"),
    ],
)
def test_wrong_usage_ends_with_2(words, reason, capsys, monkeypatch, tmp_path):
    # The servers of other tests are on this host too.
    only = found.only
    monkeypatch.setattr(found, "only", lambda parse: only(parse, tmp_path))
    assert main(["top", *words]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8299", ("127.0.0.1", 8299)),
        (":8299", ("0.0.0.0", 8299)),
        ("[::1]:8299", ("::1", 8299)),
        ("localhost:8299?backlog=16", ("localhost", 8299)),
        ("unix:/run/a.admin", "/run/a.admin"),
        ("unix:a?umask=7", "a"),
        ("unix:@name", "\0name"),
    ],
)
def test_places_are_written_like_the_setting(text, address):
    assert source.place(text).address == address


def test_help(capsys):
    assert main(["top", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--interval SECONDS" in text
    assert max(map(len, text.splitlines())) < 80


def test_a_screen_needs_a_terminal(admin, capsys):
    assert main(["top", "--admin", admin.address]) == 1
    assert "--once and --json need none" in capsys.readouterr().err


# ---- Where the server is


Give = Callable[[pytest.MonkeyPatch, str], list[str]]


def by_flag(_: pytest.MonkeyPatch, address: str) -> list[str]:
    return ["--admin", address]


def by_variable(monkeypatch: pytest.MonkeyPatch, address: str) -> list[str]:
    monkeypatch.setenv("STANCHION_ADMIN", address)
    return []


def by_config_named(_: pytest.MonkeyPatch, address: str) -> list[str]:
    Path("named.py").write_text(f"admin = {address!r}\nworkers = 'what?'\n")
    return ["-c", "named.py"]


def by_config_found(_: pytest.MonkeyPatch, address: str) -> list[str]:
    Path("stanchion.conf.py").write_text(f"admin = {address!r}\n")
    return []


ORDERED = [by_flag, by_variable, by_config_named, by_config_found]


@pytest.mark.parametrize("first", range(len(ORDERED)), ids=[give.__name__ for give in ORDERED])
def test_who_comes_first_wins_and_is_enough(first, admin, home, monkeypatch):
    words = [word for give in ORDERED[first + 1 :] for word in give(monkeypatch, f"unix:{home}/nobody")]
    if first < ORDERED.index(by_config_named):
        words = [word for word in words if word not in ("-c", "named.py")]
    words += ORDERED[first](monkeypatch, admin.address)
    assert main(["top", *words, "--json", "--once"]) == 0
    assert admin.targets == ["/status"]


# ---- How the command is made


def test_without_rich_there_is_json_and_a_word(admin, home):
    (home / "rich.py").write_text("raise ImportError('no module named rich')\n")
    environment = {**os.environ, "PYTHONPATH": str(home)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = stanchion("--admin", admin.address, "--once", *words)
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=3 * PATIENCE_S
        )

    assert run("--json").returncode == 0
    screen = run()
    assert screen.returncode == 1
    assert "pip install 'stanchion[top]'" in screen.stderr and "Traceback" not in screen.stderr


def test_no_worker_has_this_in_its_memory(home):
    code = "import stanchion.cli, sys; sys.exit(any(m.startswith(('stanchion.top', 'rich')) for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=home, check=False).returncode == 0


# ---- Stacks

SEAT = Seat(1, 0, 6, 1, "busy", 9, "GET", "/pay", 0, 0)


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (
            {
                "ok": True,
                "message": "",
                "data": [
                    {"index": 1, "pid": 5, "generation": 2, "stacks": "not this"},
                    {"index": 1, "pid": 6, "generation": 2, "stacks": "Thread\n  File \x1b\n"},
                ],
            },
            ("worker 1, pid 6, generation 2", "", "Thread", "  File \\x1b", ""),
        ),
        ({"ok": True, "message": "", "data": []}, ("The server has no stacks of worker 1: ",)),
        ({"ok": True, "message": "", "data": [{"index": 1}]}, ("No stacks: the answer is not as expected",)),
        ({"ok": True, "message": ""}, ("No stacks: the answer is not as expected",)),
        ({"ok": False, "message": "no"}, ("No stacks:", "no")),
        (7, ("No stacks:", "the answer is not a stanchion's")),
    ],
)
def test_the_stacks_of_one_worker(answer, lines, monkeypatch):
    class Call(contextlib.nullcontext):
        def ask(self, request):
            return json.dumps(answer).encode()

    call = Call()
    call.enter_result = call
    monkeypatch.setattr(looker.ctl, "Call", lambda path, timeout_s: call)
    found = looker.stacks("/ctl", SEAT)
    assert len(found) == len(lines)
    assert all(line.startswith(start) for line, start in zip(found, lines, strict=True))


def test_no_stacks_of_a_server_that_is_not_there(path):
    assert looker.stacks(str(path), SEAT)[0] == "No stacks:"
