"""Descriptors from worker to acceptor: it keeps none without a client, and blames no worker when it has none left."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.gate import Gate
from support.patience import eventually
from support.server import Serve
from support.wire import request

DOWNLOADS = 60
SPARE = 5


def test_downloads_without_a_client_leave_no_descriptor_in_the_acceptor(serve: Serve, gate: Gate) -> None:
    server = serve("keeping:hoarding", "-w", "2", env=gate.environment)
    acceptor = server.acceptor()
    before = acceptor.num_fds()
    for _ in range(DOWNLOADS):
        with server.connect() as leaving:
            leaving.send(request("GET", "/file-on-pass"))
            assert gate.announcement() == "waits"
        with server.connect() as witness:
            # Answered by the acceptor itself, which knows by then that the other one has left.
            witness.send(b"nonsense\r\n\r\n")
            assert witness.response().status == 400
        gate.let_pass(1)
    # With a file that is wanted, all that were sent before it arrive.
    with server.connect() as wire:
        gate.let_pass(1)
        assert wire.get("/file-on-pass").status == 200
    eventually(lambda: acceptor.num_fds() <= before + SPARE, "the acceptor closes what was sent to it")


@pytest.mark.own("gunicorn's workers send their files themselves")
def test_a_file_meant_for_the_clients_of_a_killed_acceptor_is_not_kept_by_the_next(serve: Serve, gate: Gate) -> None:
    server = serve("keeping:hoarding", "-w", "4", env=gate.environment)
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(server.connect()).send(request("GET", "/file-on-pass"))
        gate.announcements(4)
        server.acceptor().kill()
        with server.connect() as witness:
            # Answered by the acceptor itself, so there is one again.
            witness.send(b"nonsense\r\n\r\n")
            assert witness.response().status == 400
        after = server.acceptor()
        with server.connect() as wire:
            gate.let_pass(4)
            assert wire.get("/").status == 200
            before = after.num_fds()
            gate.let_pass(1)
            # All that were sent before this one come with it.
            assert wire.get("/file-on-pass").status == 200
            eventually(lambda: after.num_fds() <= before, f"the acceptor keeps {before} descriptors")


@contextlib.contextmanager
def out_of_descriptors(process: psutil.Process) -> Iterator[None]:
    """The process can open no more descriptors (setrlimit(2): the limit is one more than the highest)."""
    limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)


@pytest.mark.own("gunicorn's workers send their files themselves")
def test_a_file_for_which_no_descriptor_is_left_is_a_502_and_its_worker_lives(
    serve: Serve, gate: Gate, tmp_path: Path
) -> None:
    path = tmp_path / "content"
    path.write_bytes(b"x" * 100_000)
    server = serve("bodies:files", env={"FILE": str(path), **gate.environment})
    with server.connect() as wire:
        assert wire.get("/").status == 200
        with out_of_descriptors(server.acceptor()):
            assert wire.get("/").status == 502
        assert wire.get("/").body == path.read_bytes()
    assert not server.log.matches("was killed|is replaced|written over"), "the worker has done nothing wrong"


LISTING = """
import subprocess, sys

LIST = '''
import contextlib, os
for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
    with contextlib.suppress(FileNotFoundError):  # the one it is listed by
        if fd > 2:
            print(fd, os.readlink(f"/proc/self/fd/{fd}"))
'''

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [subprocess.run([sys.executable, "-S", "-c", LIST], close_fds=False, stdout=subprocess.PIPE).stdout]
"""


@pytest.mark.own("it is about stanchion's own descriptors")
@pytest.mark.parametrize("arguments", [(), ("--no-preload",)], ids=["preloaded", "not preloaded"])
def test_a_program_that_the_app_starts_inherits_nothing_of_the_servers(
    serve: Serve, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Neither the listeners, which it would hold open for ever, nor what the processes talk over."""
    (tmp_path / "listing.py").write_text(LISTING)
    server = serve("listing:app", "--pythonpath", str(tmp_path), "--control", f"unix:{tmp_path}/ctl", *arguments)
    with server.connect() as wire:
        assert wire.get("/").text == ""
