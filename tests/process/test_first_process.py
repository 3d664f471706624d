"""The server as the first process of a pid namespace, as in a container (pid_namespaces(7))."""

import contextlib
import json
import os
import signal
import socket

import psutil
import pytest

from support import processes, unshare
from support.patience import eventually
from support.server import Serve, Server

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc"]


WHY_NOT = unshare.unavailable(UNSHARE)

pytestmark = [
    pytest.mark.own("how gunicorn does as the first process is gunicorn's business"),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
]


def first_process(server: Server) -> psutil.Process:
    """The master: the one child of unshare, which only waits for it and ignores INT and TERM."""
    found = eventually(lambda: psutil.Process(server.pid).children(), "unshare forks")
    return found[0]


def leave(server: Server) -> None:
    os.kill(first_process(server).pid, signal.SIGTERM)
    assert server.exit_code() == 0


def test_orphans_of_the_app_are_reaped(serve: Serve) -> None:
    server = serve("surroundings:app", prefix=UNSHARE)
    master = first_process(server)
    with server.address.connect() as sock:
        sock.sendall(b"GET /orphan HTTP/1.0\r\n\r\n")
        seconds = json.loads(sock.makefile("rb").read().partition(b"\r\n\r\n")[2])

    def sleeps() -> psutil.Process | None:
        # It may not have got to its execve(2) yet, and its parent ends.
        for one in processes.of_session(server.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                if one.cmdline() == ["sleep", seconds]:
                    return one
        return None

    orphan = eventually(sleeps, "the app's orphan sleeps")
    assert orphan is not None
    eventually(lambda: orphan.ppid() == master.pid, "the first process adopts it")
    orphan.kill()
    eventually(lambda: not psutil.pid_exists(orphan.pid), "nothing is left of it, no zombie either")
    leave(server)


def test_it_can_be_stopped_while_it_waits_for_an_address(build: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = somebody.getsockname()[1]
        server = build("hello:app", bind=f"127.0.0.1:{port}?tries=-1&delay=60", prefix=UNSHARE).launch()
        server.log.wait("trying again")
        # The kernel drops signals for a first process that has no handler.
        leave(server)


def test_an_upgrade_is_refused_since_the_kernel_would_end_the_new_master_with_the_old_one(serve: Serve) -> None:
    server = serve("hello:app", prefix=UNSHARE)
    mark = server.log.mark()
    os.kill(first_process(server).pid, signal.SIGUSR2)
    server.log.wait("upgrade failed: it could not be started; this master goes on serving", mark)
    assert "first process of its pid namespace" in server.log.text()
    with server.address.connect() as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert sock.makefile("rb").read().endswith(b"hello\n")
    leave(server)


def test_a_pause_works_though_the_process_group_is_of_another_namespace(serve: Serve) -> None:
    """getpgrp(2) is 0 then. The master asks for its group to know whether WINCH comes from a terminal."""
    server = serve("hello:app", prefix=UNSHARE)
    mark = server.log.mark()
    os.kill(first_process(server).pid, signal.SIGWINCH)
    server.log.wait("WINCH: 0 workers", mark)
    os.kill(first_process(server).pid, signal.SIGTTIN)
    server.log.wait("TTIN: 1 worker", mark)
    leave(server)
