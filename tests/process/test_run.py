"""`stanchion.run`: a program that has called `uvicorn.run` serves with one name changed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.asgi import UVICORN
from support.patience import PATIENCE_S, eventually
from support.server import APPS, STANCHION, Kind, Serve, Server

EXIT_USAGE = 2

PROGRAM = """\
import os, {server}


async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({{"type": "http.response.start", "status": 200, "headers": []}})
        await send({{"type": "http.response.body", "body": b"%d {word}" % os.getppid()}})


def make():
    return app


if __name__ == "__main__":
    try:
        {server}.run({app}, host="127.0.0.1", port=0, lifespan="off", {options})
        print("run() has returned", flush=True)
    finally:
        print("cleaned up", flush=True)
"""


class Program:
    """Writes programs and says how they are started."""

    def __init__(self, home: Path) -> None:
        self.path = home / "shop.py"

    def write(self, server: str, app: str = "app", options: str = "", word: str = "served") -> None:
        self.path.write_text(PROGRAM.format(server=server, app=app, options=options, word=word))

    def kind(self, of: Kind) -> Kind:
        return Kind(of.name, (sys.executable, str(self.path)), of.listening, of.ready)


def failed(program: Program) -> subprocess.CompletedProcess[str]:
    command, env = [sys.executable, str(program.path)], {"PYTHONPATH": str(APPS)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=False)
    assert done.returncode == EXIT_USAGE, done
    return done


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def answer(server: Server) -> str:
    with server.connect() as wire:
        return wire.get("/").text


@pytest.mark.own("it has servers of its own")
@pytest.mark.parametrize("of", [STANCHION, UVICORN], ids=lambda kind: kind.name)
@pytest.mark.parametrize("app", ["app", '"shop:app"'])
def test_a_program_serves_as_under_uvicorn(serve: Serve, program: Program, of: Kind, app: str) -> None:
    program.write(of.name, app, 'access_log=False, log_level="info", timeout_keep_alive=60')
    server = serve("", bind="", kind=program.kind(of))
    assert answer(server).endswith(" served")
    server.signal(signal.SIGINT)
    assert server.exit_code() in (0, -signal.SIGINT)
    server.stdout.wait_end()


@pytest.mark.own("gunicorn has no such function")
def test_it_returns_once_in_the_program_and_in_no_worker(serve: Serve, program: Program) -> None:
    program.write("stanchion", options="workers=3")
    server = serve("", bind="", kind=program.kind(STANCHION))
    assert answer(server) == f"{server.pid} served"
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.stdout.wait_end()
    assert server.stdout.text().splitlines() == ["run() has returned", "cleaned up"]


@pytest.mark.own("gunicorn has no such function")
def test_a_worker_runs_what_is_to_be_run_at_its_exit(serve: Serve, program: Program) -> None:
    program.write("stanchion", options="workers=2")
    with program.path.open() as file:
        text = file.read()
    # In one write, since the other worker writes as well.
    at_exit = "import atexit\natexit.register(lambda: print(f'exit of {os.getpid()}\\n', end='', flush=True))\n"
    program.path.write_text(text.replace("\n\n\nasync", f"\n{at_exit}\n\nasync"))
    server = serve("", bind="", kind=program.kind(STANCHION))
    workers = {int(found[1]) for found in server.log.wait_for(r"worker ready worker=\d pid=(\d+) generation=2", 2)}
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.stdout.wait_end()
    ended = {int(line.split()[-1]) for line in server.stdout.text().splitlines() if line.startswith("exit of")}
    assert ended >= {server.pid, *workers}


@pytest.mark.own("gunicorn has no such function")
def test_an_app_that_is_named_is_new_after_a_reload(serve: Serve, program: Program) -> None:
    program.write("stanchion", '"shop:make"', "factory=True, workers=2", word="one")
    server = serve("", bind="", kind=program.kind(STANCHION))
    assert answer(server) == f"{server.pid} one"
    program.write("stanchion", '"shop:make"', "factory=True, workers=2", word="another")
    server.signal(signal.SIGHUP)
    server.log.wait(r"reloaded: generation \d+ serves")
    assert answer(server) == f"{server.pid} another"


@pytest.mark.own("gunicorn has no such function")
def test_a_change_of_the_file_reloads_it(serve: Serve, program: Program) -> None:
    program.write("stanchion", '"shop:app"', "reload=True", word="one")
    server = serve("", bind="", kind=program.kind(STANCHION))
    assert answer(server) == f"{server.pid} one"
    program.write("stanchion", '"shop:app"', "reload=True", word="another")
    server.log.wait(r"reloaded: generation \d+ serves")
    eventually(lambda: answer(server) == f"{server.pid} another", "the new code serves")


@pytest.mark.own("gunicorn has no such function")
def test_a_program_with_threads_is_told_how_to_do_without(program: Program) -> None:
    program.path.write_text(
        "import stanchion, threading\n"
        "threading.Thread(target=threading.Event().wait, args=(60,), name='pusher', daemon=True).start()\n"
        "stanchion.run(lambda environ, start_response: [], port=0)\n"
    )
    done = failed(program)
    assert 'the master has 1 thread: "pusher"' in done.stderr
    assert "run `stanchion serve MODULE:APP`" in done.stderr.splitlines()[-1]


@pytest.mark.own("gunicorn has no such function")
def test_what_cannot_be_honoured_ends_the_program_with_the_reason(program: Program) -> None:
    program.write("stanchion", options='headers=[("a", "b")], prot=1')
    done = failed(program)
    assert done.stdout == "cleaned up\n"
    assert done.stderr.splitlines() == [
        "stanchion: run(): headers=[('a', 'b')] cannot be honoured: let the app or the proxy set them",
        "stanchion: run(): there is no 'prot'; did you mean 'port'?",
    ]
