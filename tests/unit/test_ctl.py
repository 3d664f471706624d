"""`stanchion ctl` against a server that a test plays: what is sent, what is shown, and how it ends."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stanchion import ctl
from stanchion.cli import main
from support.patience import PATIENCE_S

STATUS = {
    "version": "0.1.0",
    "pid": 100,
    "uptime_s": 3_725,
    "phase": "serving",
    "generation": 3,
    "retiring": [2],
    "listeners": ["http://127.0.0.1:8000", "unix:/run/a.sock"],
    "workers_wanted": 4,
    "workers_ready": 3,
    "seats_total": 8,
    "seats_busy": 2,
    "running_longest_us": 14_300_000,
    "acceptor_still_s": None,
    "stopped": [],
    "signals": "gunicorn",
    "requests": {"arrived": 12, "in_flight": 2, "answered": 9, "broken_off": 0, "refused_line_full": 1},
    "events": {"connections_accepted": 0},
}
SEATS = [
    {"state": "busy", "served": 7, "busy_us": 61_000_000, "running_us": 2_500_000},
    {"state": "idle", "served": 3, "busy_us": 2_000_000, "running_us": None},
]
WORKERS = [
    {
        "index": 0,
        "pid": 101,
        "generation": 3,
        "stage": "ready",
        "stopped": False,
        "memory_bytes": 50 << 20,
        "seats_total": 2,
        "seats_busy": 1,
        "served": 10,
        "busy_us": 63_000_000,
        "seats": SEATS,
    },
    {
        "index": 1,
        "pid": None,
        "generation": 3,
        "stage": "wanted",
        "stopped": False,
        "memory_bytes": None,
        "seats_total": 0,
        "seats_busy": 0,
        "served": 0,
        "busy_us": 0,
        "seats": [],
    },
]
STACKS = [{"index": 0, "pid": 101, "generation": 3, "stacks": "Thread 0x1 (most recent call first):\n  File x\n"}]


class Master:
    """One end of a control socket: answers each connection's request with the same bytes, and keeps the requests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer = b""
        self.requests: list[Any] = []
        self.until = threading.Event()
        self.until.set()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def says(self, ok: bool = True, message: str = "", data: object = None) -> None:
        self.answer = json.dumps({"ok": ok, "message": message, "data": data}).encode() + b"\n"

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                request = bytearray()
                while not request.endswith(b"\n") and (part := connection.recv(4096)):
                    request += part
                if not request:
                    return
                self.requests.append(json.loads(request))
                self.until.wait(PATIENCE_S)
                try:
                    connection.sendall(self.answer)
                except OSError:
                    continue  # It did not wait.

    def stop(self) -> None:
        self.until.set()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(self.path))
        self._thread.join(PATIENCE_S)
        self._socket.close()


@pytest.fixture
def path() -> Iterator[Path]:
    """Short, as a path of a socket must be (unix(7))."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory, "ctl")


@pytest.fixture
def master(path: Path) -> Iterator[Master]:
    master = Master(path)
    yield master
    master.stop()


@pytest.fixture(autouse=True)
def no_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STANCHION_CONTROL", raising=False)


def run(master: Master, *words: str) -> int:
    return main(["ctl", "--control", f"unix:{master.path}", *words])


@pytest.mark.parametrize(
    ("words", "request_sent"),
    [
        (["reload"], {"command": "reload"}),
        (["upgrade"], {"command": "upgrade"}),
        (["drain"], {"command": "drain"}),
        (["reopen"], {"command": "reopen"}),
        (["quit"], {"command": "quit"}),
        (["scale", "4"], {"command": "scale", "workers": 4}),
        (["scale", "auto"], {"command": "auto"}),
        (["scale", "--timeout", "5", "0"], {"command": "scale", "workers": 0}),
        (["--timeout=5", "reload", "--json"], {"command": "reload"}),
    ],
)
def test_each_order_is_sent_and_its_outcome_shown(master, words, request_sent, capsys):
    master.says(message="it is done")
    assert run(master, *words) == 0
    assert master.requests == [request_sent]
    assert "it is done" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["reload"], ["reload", "--json"], ["--help"]])
def test_a_reader_may_have_seen_enough(master, words):
    """As in `stanchion ctl dump | head -1`."""
    master.says(message="it is done\n" * 10_000)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "stanchion", "ctl", "--control", f"unix:{master.path}", *words]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_refusal_ends_with_1_and_its_reason(master, capsys):
    master.says(ok=False, message="reload failed: the app could not be loaded")
    assert run(master, "reload") == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "stanchion ctl: reload failed: the app could not be loaded\n"


def test_a_refusal_in_json_is_both(master, capsys):
    master.says(ok=False, message="no")
    assert run(master, "--json", "reload") == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"ok": False, "message": "no", "data": None}
    assert shown.err == "stanchion ctl: no\n"


def test_status_for_people(master, capsys):
    master.says(data=STATUS)
    assert run(master, "status") == 0
    assert capsys.readouterr().out == (
        "server        stanchion 0.1.0, master 100\n"
        "up            1 h 2 min\n"
        "phase         serving\n"
        "generation    3 (retiring: 2)\n"
        "listening at  http://127.0.0.1:8000, unix:/run/a.sock\n"
        "workers       3 ready of 4\n"
        "seats         2 busy of 8, the longest for 14.3 s\n"
        "signals       gunicorn\n"
        "requests      arrived 12, in_flight 2, answered 9, refused_line_full 1\n"
        "events        none\n"
    )


def test_workers_for_people(master, capsys):
    master.says(data=WORKERS)
    assert run(master, "workers") == 0
    assert capsys.readouterr().out == (
        "worker  pid  gen  stage   pss     seats        served  busy       running\n"
        "0       101  3    ready   50 MiB  1 busy of 2  10      1 min 3 s  2.5 s\n"
        "1       -    3    wanted  -       0 busy of 0  0       0 ms       -\n"
    )


def test_stacks_for_people(master, capsys):
    master.says(data=STACKS)
    assert run(master, "dump") == 0
    assert capsys.readouterr().out == (
        "worker 0, pid 101, generation 3:\nThread 0x1 (most recent call first):\n  File x\n"
    )


def test_stacks_that_are_alike_are_shown_once(master, capsys):
    others = [
        {"pid": 102, "index": 1},
        {"pid": 103, "index": 2, "stacks": "Thread 0x2:\n  File y\n"},
        {"pid": 104, "index": 3},
    ]
    master.says(data=[STACKS[0], *(STACKS[0] | other for other in others)])
    assert run(master, "dump") == 0
    assert capsys.readouterr().out.splitlines() == [
        "worker 0, pid 101, generation 3",
        "worker 1, pid 102, generation 3",
        "worker 3, pid 104, generation 3:",
        "Thread 0x1 (most recent call first):",
        "  File x",
        "",
        "worker 2, pid 103, generation 3:",
        "Thread 0x2:",
        "  File y",
    ]


@pytest.mark.parametrize("data", [STATUS, WORKERS, STACKS])
def test_json_is_what_came(master, data, capsys):
    master.says(data=data)
    assert run(master, "workers", "--json") == 0
    assert json.loads(capsys.readouterr().out)["data"] == data


def test_data_of_another_version_is_said_to_be_so(master, capsys):
    master.says(data={"version": "9"})
    assert run(master, "status") == 1
    assert "--json shows it as it is" in capsys.readouterr().err
    assert run(master, "status", "--json") == 0


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed the connection without an answer"),
        (b'{"ok": true', "closed the connection without an answer"),
        (b"HTTP/1.1 400 Bad Request\r\n", "the answer is not a stanchion's"),
        (b'{"ok": 1, "message": ""}\n', "the answer is not a stanchion's"),
        (b'{"ok": true}\n', "the answer is not a stanchion's"),
        (b"[]\n", "the answer is not a stanchion's"),
        (b"\xff\n", "the answer is not a stanchion's"),
        (b"x" * (ctl.ANSWER_BYTES_MAX + 1), "is longer than"),
    ],
)
def test_whatever_else_comes_is_no_success(master, answer, reason, capsys):
    master.answer = answer
    assert run(master, "status") == 1
    assert reason in capsys.readouterr().err


def test_it_does_not_wait_longer_than_told(master, capsys):
    master.until.clear()
    assert run(master, "--timeout", "0.05", "reload") == 1
    assert "no answer within 0.05 s; what was ordered may still be done" in capsys.readouterr().err


def test_a_server_that_is_not_there_ends_with_3(path, capsys):
    assert main(["ctl", "--control", f"unix:{path}", "status"]) == 3
    assert "no server listens at" in capsys.readouterr().err
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    assert main(["ctl", "--control", f"unix:{path}", "status"]) == 3


def test_a_path_that_cannot_be_is_no_missing_server(capsys):
    assert main(["ctl", "--control", f"unix:/{'x' * 200}", "status"]) == 1
    assert "cannot connect to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "which command?"),
        (["start"], "there is no command start; there are status, workers, reload"),
        (["scale"], "scale wants auto or a number of workers up to 65535"),
        (["scale", "x"], "scale wants auto or a number"),
        (["scale", "65536"], "scale wants auto or a number"),
        (["scale", "9" * 5000], "scale wants auto or a number"),
        (["status", "now"], "status wants no more words, not 'now'"),
        (["--timeout", "0", "status"], "expected seconds between 0 and 86400, got '0'"),
        (["--timeout", "nan", "status"], "expected seconds"),
        (["--timeout", "x", "status"], "invalid _seconds value: 'x'"),
        (["--cntrl", "x", "status"], "unrecognized arguments: --cntrl"),
        (["--control", "127.0.0.1:80", "status"], "is written unix:PATH, not '127.0.0.1:80'"),
        (["--control", "unix:@name", "status"], "is written unix:PATH"),
        (["status"], "where is the server?"),
    ],
)
def test_wrong_usage_ends_with_2(words, reason, capsys):
    assert main(["ctl", *words]) == 2
    assert reason in capsys.readouterr().err


def test_help(capsys):
    assert main(["ctl", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(line in text for line in ("--timeout SECONDS", "reload", "dump"))
    assert max(map(len, text.splitlines())) < 80


# ---- Where the server is


Give = Callable[[pytest.MonkeyPatch, str], list[str]]


def by_flag(_: pytest.MonkeyPatch, control: str) -> list[str]:
    return ["--control", control]


def by_variable(monkeypatch: pytest.MonkeyPatch, control: str) -> list[str]:
    monkeypatch.setenv("STANCHION_CONTROL", control)
    return []


def by_config_named(_: pytest.MonkeyPatch, control: str) -> list[str]:
    Path("named.py").write_text(f"control = {control!r}\nworkers = 'what?'\n")
    return ["-c", "named.py"]


def by_config_of_the_variable(monkeypatch: pytest.MonkeyPatch, control: str) -> list[str]:
    Path("other.py").write_text(f"control = {control!r}\n")
    monkeypatch.setenv("STANCHION_CMD_ARGS", "-c other.py")
    return []


def by_config_found(_: pytest.MonkeyPatch, control: str) -> list[str]:
    Path("stanchion.conf.py").write_text(f"control = {control!r}\n")
    return []


ORDERED = [by_flag, by_variable, by_config_named, by_config_of_the_variable, by_config_found]


@pytest.mark.parametrize("first", range(len(ORDERED)), ids=[give.__name__ for give in ORDERED])
def test_who_comes_first_wins_and_is_enough(first, master, home, monkeypatch):
    """Each place against all that come after it, which name a server that is not there."""
    master.says(data=STATUS)
    words = [word for give in ORDERED[first + 1 :] for word in give(monkeypatch, f"unix:{home}/nobody")]
    if first < ORDERED.index(by_config_named):
        words = [word for word in words if word not in ("-c", "named.py")]
    words += ORDERED[first](monkeypatch, f"unix:{master.path}")
    assert main(["ctl", *words, "status"]) == 0
    assert master.requests == [{"command": "status"}]


def test_flags_in_the_variable_come_before_the_config_file(master, home, monkeypatch):
    master.says(data=STATUS)
    by_config_found(monkeypatch, f"unix:{home}/nobody")
    monkeypatch.setenv("STANCHION_CMD_ARGS", f"-w 2 --control unix:{master.path}")
    assert main(["ctl", "status"]) == 0


@pytest.mark.parametrize("variable", ["STANCHION_CMD_ARGS", "GUNICORN_CMD_ARGS"])
@pytest.mark.parametrize("mistake", ["--nonsuch 7", "one:app two:app", "-w", "--worker-class sync --bin"])
def test_a_mistake_in_the_variable_is_none_of_ctl(mistake, variable, master, home, monkeypatch, capsys):
    master.says(data=STATUS)
    monkeypatch.setenv(variable, f"--control unix:{master.path} {mistake}")
    assert main(["ctl", "status"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("flags", ["--bind 'unix:/run/a", "--control"])
def test_a_variable_that_cannot_be_read_is_named_and_the_config_file_is_asked(flags, master, home, monkeypatch, capsys):
    master.says(data=STATUS)
    by_config_found(monkeypatch, f"unix:{master.path}")
    monkeypatch.setenv("STANCHION_CMD_ARGS", flags)
    assert main(["ctl", "status"]) == 0
    assert capsys.readouterr().err.startswith("stanchion: warning: not read: STANCHION_CMD_ARGS: ")


@pytest.mark.parametrize("in_variable", [True, False])
def test_a_path_in_the_config_file_is_meant_from_the_servers_directory(in_variable, master, home, monkeypatch):
    master.says(data=STATUS)
    directory = os.path.dirname(master.path)
    text = f"control = 'unix:{os.path.basename(master.path)}'\n"
    (home / "stanchion.conf.py").write_text(text + ("chdir = 'nowhere'" if in_variable else f"chdir = {directory!r}"))
    if in_variable:
        monkeypatch.setenv("STANCHION_CMD_ARGS", f"--chdir {directory}")
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    assert main(["ctl", "-c", f"{home}/stanchion.conf.py", "status"]) == 0


def test_a_control_that_is_no_text_is_refused(home, capsys):
    (home / "stanchion.conf.py").write_text("control = 7\n")
    assert main(["ctl", "status"]) == 2
    assert "the `control` of stanchion.conf.py is no text" in capsys.readouterr().err


def test_no_worker_has_this_in_its_memory(home):
    code = "import stanchion.cli, sys; sys.exit('stanchion.ctl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=home, check=False).returncode == 0


def test_only_what_ends_the_server_can_be_waited_for(capsys):
    assert main(["ctl", "reload", "--wait"]) == 2
    assert "it goes with drain and quit alone" in capsys.readouterr().err
