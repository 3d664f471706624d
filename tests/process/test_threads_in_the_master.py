"""Threads that the config file or a hook starts in the master, which forks and so must not have any."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.processes import gone, kill
from support.server import Serve, Server

pytestmark = pytest.mark.own("gunicorn forks with whatever threads there are")

EXIT_INTERNAL = 1
EXIT_BAD_USAGE = 2
EXIT_BOOT_FAILED = 3

STAY = "threading.Thread(target=lambda: threading.Event().wait(), name='apm-flush', daemon={daemon}).start()"
STAYS = STAY.format(daemon=True)
NOT_EVEN_A_DAEMON = STAY.format(daemon=False)
ENDS = "t = threading.Thread(target=lambda: time.sleep(0.05)); t.start()"

NAMED = '1 thread: "apm-flush"'

Write = Callable[[str], list[str]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the config file; gives the arguments for it."""

    def write(text: str) -> list[str]:
        config = tmp_path / "threads.conf.py"
        config.write_text(f"import threading, time\n{text}\n")
        return ["-c", str(config)]

    return write


def answers(server: Server) -> bool:
    with server.connect() as wire:
        return wire.get("/").status == 200


@pytest.mark.parametrize("text", [STAYS, NOT_EVEN_A_DAEMON])
def test_of_the_config_file_stop_the_start_before_anything_is_bound(build: Serve, write: Write, text: str) -> None:
    server = build("hello:app", *write(text)).launch()
    assert server.exit_code() == EXIT_BAD_USAGE
    server.log.wait(rf"ERROR\] besides its own thread, the master has {NAMED}.*post_fork")
    assert not server.log.matches("listening at")


def test_of_the_config_file_are_no_problem_if_they_end_at_once(serve: Serve, write: Write) -> None:
    server = serve("hello:app", *write(ENDS))
    assert answers(server)
    assert not server.log.matches("thread")


@pytest.mark.parametrize("text", [STAYS, NOT_EVEN_A_DAEMON])
def test_of_on_starting_stop_the_start(build: Serve, write: Write, tmp_path: Path, text: str) -> None:
    server = build("hello:app", *write(f"def on_starting(server): {text}"), bind=f"unix:{tmp_path}/socket").launch()
    assert server.exit_code() == EXIT_BOOT_FAILED
    server.log.wait(rf"ERROR\] the hook on_starting has left {NAMED}")
    assert not (tmp_path / "socket").exists()


def test_of_a_reload_fail_it_and_the_old_generation_serves_on(serve: Serve, write: Write) -> None:
    server = serve("hello:app", *write(""))
    mark = server.log.mark()
    write(STAYS)
    server.signal(signal.SIGHUP)
    server.log.wait(rf"has left {NAMED} in the master.*restart", mark)
    server.log.wait("reload failed", mark)
    assert answers(server)
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0


class TestOfAHook:
    """The log names the thread at once, and processes that were forked before serve on."""

    @pytest.fixture
    def server(self, serve: Serve, write: Write) -> Server:
        server: Server = serve("hello:app", "-w", "2", *write(f"def when_ready(server): {NOT_EVEN_A_DAEMON}"))
        server.log.wait(rf"ERROR\] the hook when_ready has left {NAMED} in the master")
        assert answers(server)
        return server

    def test_is_named_once(self, server: Server) -> None:
        for number in (signal.SIGTTIN, signal.SIGTTOU):
            mark = server.log.mark()
            server.signal(number)
            server.log.wait("worker ready" if number == signal.SIGTTIN else "2 wanted|workers", mark)
        assert len(server.log.matches("has left")) == 1

    def test_workers_are_replaced_all_the_same(self, server: Server) -> None:
        mark = server.log.mark()
        template = server.of_name("stanchion-work")[0]
        kill(template)
        server.log.wait("worker ready", mark)
        assert answers(server)

    def test_the_server_that_cannot_replace_its_acceptor_leaves(self, server: Server) -> None:
        mark = server.log.mark()
        kill(server.acceptor())
        server.log.wait(rf"ERROR\] the acceptor cannot be forked: a hook has left {NAMED} in the master", mark)
        server.log.wait(r"ERROR\] the server stops, since it cannot serve without an acceptor", mark)
        assert server.exit_code() == EXIT_INTERNAL

    def test_a_template_that_cannot_be_replaced_is_said_and_workers_serve_on(self, server: Server) -> None:
        mark = server.log.mark()
        template = server.of_name("stanchion-tmpl")[0]
        kill(template)
        server.log.wait(rf"ERROR\] the template cannot be forked: a hook has left {NAMED} in the master", mark)
        assert answers(server)

    def test_a_reload_fails_and_says_why(self, server: Server) -> None:
        mark = server.log.mark()
        server.signal(signal.SIGHUP)
        server.log.wait(rf"has left {NAMED} in the master", mark)
        server.log.wait("reload failed", mark)
        assert answers(server)

    def test_the_server_leaves_when_told(self, server: Server) -> None:
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        gone(server.pid)
