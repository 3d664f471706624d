"""The live screen of `stanchion top` on a real terminal: keys work, it goes on, and the terminal is given back."""

import json
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from support.admin import Admin, seat, status
from support.patience import PATIENCE_S, eventually
from support.screen import Screen

pytestmark = pytest.mark.own("it has top")

ALTERNATE, PLAIN = "\x1b[?1049h", "\x1b[?1049l"
CURSOR = "\x1b[?25h"

SEATS = [seat(0, 0, served=9), seat(1, 0, 700_000, "/young", served=1), seat(2, 0, 900_000, "/old\x1b[2J", served=5)]

Open = Callable[..., Screen]


@pytest.fixture
def admin() -> Iterator[Admin]:
    admin = Admin()
    admin.says(status(seats=SEATS))
    yield admin
    admin.stop()


@pytest.fixture
def open_screen(admin: Admin) -> Iterator[Open]:
    opened: list[Screen] = []

    def start(*words: str, **more: object) -> Screen:
        command = [sys.executable, "-m", "stanchion", "top", "--admin", admin.address, "--interval", "0.1", *words]
        opened.append(Screen(*command, **more))
        return opened[-1]

    yield start
    for screen in opened:
        screen.close()


def given_back(screen: Screen) -> bool:
    return screen.state() == screen.found and screen.written.rindex(PLAIN) > screen.written.rindex(ALTERNATE)


def workers(screen: Screen) -> list[str]:
    rows = screen.rows()
    head = next(number for number, row in enumerate(rows) if row.startswith("worker"))
    return [row.split()[0] for row in rows[head + 1 : head + 4]]


def test_keys_sort_choose_pause_and_quit(admin, open_screen):
    screen = open_screen()
    assert "GET /old\\x1b[2J" in screen.wait("GET /old")
    assert screen.state() != screen.found
    assert workers(screen) == ["2", "1", "0"]
    screen.type("w")
    eventually(lambda: workers(screen) == ["0", "1", "2"], "sorted by worker")
    screen.type("s")
    eventually(lambda: workers(screen) == ["0", "2", "1"], "sorted by served")
    screen.type("?")
    screen.wait("sort the seats by age")
    screen.type("\x1b")
    screen.wait("3 seats busy")
    screen.type("p")
    screen.wait("PAUSED")
    admin.says(status(version="9.9.9"))
    admin.wait_looks(3)
    assert not any("9.9.9" in row for row in screen.rows())
    screen.type("p")
    screen.wait(r"stanchion 9\.9\.9")
    screen.type("q")
    assert screen.exit_code() == 0
    assert given_back(screen)
    assert screen.written.rindex(CURSOR) > screen.written.rindex(ALTERNATE)
    assert screen.errors() == ""


def test_only_what_changed_is_written(admin, open_screen):
    screen = open_screen()
    # The last row: then all of it is drawn.
    screen.wait("q quit")
    admin.wait_looks(3)
    screen.rows()
    mark = len(screen.written)
    admin.says(status(seats=SEATS, line={"waiting": 7}))
    screen.wait("7 of 2048 waiting")
    assert "line     " in screen.written[mark:]
    assert "listener" not in screen.written[mark:] and "\x1b[2J" not in screen.written[mark:]


def test_it_follows_the_size_of_the_terminal(open_screen):
    screen = open_screen(columns=80, lines=24)
    screen.wait("q quit")
    assert len(screen.rows()) == 24
    screen.resize(60, 40)
    eventually(lambda: len(screen.rows()) == 40, "40 lines")
    assert max(map(len, screen.rows())) <= 60
    screen.resize(30, 5)
    eventually(lambda: len(screen.rows()) == 5, "5 lines")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT], ids=str)
def test_a_signal_ends_it_and_the_terminal_is_given_back(number, open_screen):
    screen = open_screen()
    screen.wait("seats busy")
    screen.process.send_signal(number)
    assert screen.exit_code() == 128 + number
    assert given_back(screen)
    assert screen.errors() == ""


def test_an_error_of_ours_gives_the_terminal_back(open_screen, tmp_path):
    # Read by Python at its start (site(3)): breaks the one function that draws.
    broken = "def broken(*_):\n    raise RuntimeError('broken')\n"
    (tmp_path / "sitecustomize.py").write_text(f"from stanchion.top import lines\n\n{broken}\nlines.screen = broken\n")
    screen = open_screen(PYTHONPATH=str(tmp_path))
    assert screen.exit_code() == 1
    assert given_back(screen)
    assert "RuntimeError: broken" in screen.errors()


def test_a_terminal_that_hangs_up_ends_it(open_screen):
    screen = open_screen()
    screen.wait("seats busy")
    screen.hang_up()
    assert screen.process.wait(PATIENCE_S) == 128 + signal.SIGHUP
    assert screen.errors() == ""


def test_a_terminal_that_takes_nothing_does_not_hold_it(open_screen):
    screen = open_screen(columns=400, lines=400)
    eventually(lambda: psutil.Process(screen.process.pid).num_threads() > 1, "it looks")
    # The test does not read its end: the kernel's buffer is full after some KiB.
    screen.process.send_signal(signal.SIGTERM)
    assert screen.process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert screen.state() == screen.found


def test_it_can_be_suspended_and_goes_on(open_screen):
    screen = open_screen()
    screen.wait("seats busy")
    screen.type("\x1a")
    process = psutil.Process(screen.process.pid)
    # SIGTSTP does not stop an orphaned process group, such as this one, which no shell would continue (setpgid(2)).
    screen.wait_written(PLAIN, 0)
    screen.wait_written(ALTERNATE, screen.written.rindex(PLAIN))
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: process.status() == psutil.STATUS_STOPPED, "it stops")
    mark = len(screen.written)
    process.send_signal(signal.SIGCONT)
    screen.wait_written(ALTERNATE, mark)
    screen.type("q")
    assert screen.exit_code() == 0
    assert given_back(screen)


def test_a_server_that_goes_away_is_said_to_and_tried_again(admin, open_screen):
    screen = open_screen()
    screen.wait("seats busy")
    admin.sends(b"", head=b"HTTP/1.1 503 Service Unavailable\r\n")
    screen.wait("trying again: .* answers 503 to /status")
    assert any("stanchion 0.1.0" in row for row in screen.rows()), "what was last seen stays"
    admin.says(status(seats=SEATS, version="1.2.3"))
    screen.wait(r"stanchion 1\.2\.3")
    assert not any("trying again" in row for row in screen.rows())


def test_it_waits_for_a_server_that_is_not_there_yet(open_screen):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "admin")
        screen = open_screen("--admin", f"unix:{path}")
        screen.wait("trying again: no process listens at")
        late = Admin(path)
        screen.wait("seats busy")
        screen.type("q")
        assert screen.exit_code() == 0
        late.stop()


# ---- Stacks


def test_the_stacks_of_the_chosen_worker(open_screen):
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as control:
        path = Path(directory, "ctl")
        control.bind(str(path))
        control.listen()
        requests: list[bytes] = []
        answer = {
            "ok": True,
            "message": "",
            "data": [
                {"index": number, "pid": 200 + number, "generation": 3, "stacks": f"Thread of {number}\n  File x\n"}
                for number in range(3)
            ],
        }

        def serve() -> None:
            connection, _ = control.accept()
            with connection:
                requests.append(connection.recv(4096))
                connection.sendall(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        screen = open_screen("--control", f"unix:{path}")
        screen.wait("GET /young")
        screen.type("j")
        screen.type("d")
        screen.wait("worker 1, pid 201, generation 3")
        assert any("Thread of 1" in row for row in screen.rows())
        assert not any("Thread of 2" in row for row in screen.rows())
        thread.join(PATIENCE_S)
        assert [json.loads(request) for request in requests] == [{"command": "dump"}]
        screen.type("q")
        screen.wait("seats busy")


def test_without_a_control_socket_it_says_so(open_screen):
    screen = open_screen()
    screen.wait("GET /old")
    screen.type("d")
    screen.wait("No control socket is known")


def test_without_a_terminal_it_says_so(open_screen):
    screen = open_screen(TERM="dumb")
    assert screen.exit_code() == 1
    assert "--once and --json need none" in screen.errors()
