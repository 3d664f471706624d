"""A program that makes its server itself, as gunicorn's "Custom Application" does, with one import changed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import PATIENCE_S, eventually
from support.server import APPS, GUNICORN, STANCHION, Kind, Serve, Server

EXIT_USAGE = 2

# https://docs.gunicorn.org/en/stable/custom.html, but for where it listens.
RECIPE = """\
from {server}.app.base import BaseApplication


def handler_app(environ, start_response):
    response_body = b'Works fine'
    status = '200 OK'

    response_headers = [
        ('Content-Type', 'text/plain'),
    ]

    start_response(status, response_headers)

    return [response_body]


class StandaloneApplication(BaseApplication):

    def __init__(self, app, options=None):
        self.options = options or {{}}
        self.application = app
        super().__init__()

    def load_config(self):
        config = {{key: value for key, value in self.options.items()
                  if key in self.cfg.settings and value is not None}}
        for key, value in config.items():
            self.cfg.set(key.lower(), value)

    def load(self):
        return self.application


if __name__ == '__main__':
    options = {options}
    StandaloneApplication(handler_app, options).run()
    print("run() has returned")
"""

OPTIONS = {"bind": "127.0.0.1:0", "workers": 2, "no_such_setting": 1, "keyfile": None}


class Program:
    """Writes programs and says how they are started."""

    def __init__(self, home: Path) -> None:
        self.path = home / "program.py"

    def kind(self, of: Kind, text: str) -> Kind:
        self.path.write_text(text)
        return Kind(of.name, (sys.executable, str(self.path)), of.listening, of.ready)

    def failed(self, text: str) -> subprocess.CompletedProcess[str]:
        self.path.write_text(text)
        command = [sys.executable, str(self.path)]
        env = {"PYTHONPATH": str(APPS)}
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=False)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def answer(server: Server) -> bytes:
    with server.connect() as wire:
        return wire.get("/").body


@pytest.mark.parametrize("of", [STANCHION, GUNICORN], ids=lambda kind: kind.name)
def test_gunicorns_own_example_serves(serve: Serve, program: Program, of: Kind) -> None:
    server = serve("", bind="", kind=program.kind(of, RECIPE.format(server=of.name, options=OPTIONS)))
    assert answer(server) == b"Works fine"
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.stdout.wait_end()
    assert "run() has returned" not in server.stdout.text()


HOOKED = RECIPE.replace(
    "    StandaloneApplication(",
    """\
    def post_worker_init(worker):
        # In one write, since the other worker writes as well.
        print(f"init {{worker.wsgi is handler_app}}\\n", end="", flush=True)

    def when_ready(server):
        print(f"ready {{server.cfg.workers}} {{server.cfg.proc_name}}\\n", end="", flush=True)

    options |= {{"post_worker_init": post_worker_init, "when_ready": when_ready}}
    StandaloneApplication(""",
)


@pytest.mark.parametrize("of", [STANCHION, GUNICORN], ids=lambda kind: kind.name)
def test_hooks_and_settings_are_those_of_the_program(serve: Serve, program: Program, of: Kind) -> None:
    text = HOOKED.format(server=of.name, options=OPTIONS | {"proc_name": "mine", "preload_app": True})
    server = serve("", bind="", kind=program.kind(of, text))
    assert answer(server) == b"Works fine"
    eventually(lambda: len(server.stdout.text().splitlines()) == 3, "all hooks have run")
    assert sorted(server.stdout.text().splitlines()) == ["init True", "init True", "ready 2 mine"]


LOADING = """\
import os, sys
from stanchion.app.base import BaseApplication


class Shop(BaseApplication):
    def load_config(self):
        with open("workers") as file:
            self.cfg.set("workers", file.read().strip())
        self.cfg.set("bind", "127.0.0.1:0")
        assert self.cfg.workers == self.cfg.settings["workers"].get()

    def load(self):
        with open("release") as file:
            release = file.read().encode()

        def app(environ, start_response):
            start_response("200 OK", [])
            return [release + b" " + str(os.getppid()).encode()]

        return app


Shop().run()
"""


@pytest.mark.own("gunicorn's hooks and workers are others")
def test_a_reload_loads_settings_and_app_again(build: Serve, program: Program) -> None:
    server = build("", bind="", kind=program.kind(STANCHION, LOADING))
    (server.home / "workers").write_text("1\n")
    (server.home / "release").write_text("one")
    server.start()
    assert answer(server) == f"one {server.pid}".encode()
    (server.home / "release").write_text("two")
    (server.home / "workers").write_text("2\n")
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation 2")
    # The generation before accepts no connection from now on.
    assert answer(server) == f"two {server.pid}".encode()
    # A reload that fails changes nothing, and logs why.
    (server.home / "workers").write_text("many\n")
    server.signal(signal.SIGHUP)
    server.log.wait("reload failed")
    server.log.only(r"^the program's settings cannot be loaded: ValueError: setting `workers`.*; generation 2 goes on")
    (server.home / "workers").write_text("2\n")
    assert answer(server) == f"two {server.pid}".encode()
    (server.home / "release").write_text("three")
    server.signal(signal.SIGUSR2)
    server.follow(int(server.log.wait(r"upgraded: the new master (\d+) serves")[1]))
    assert answer(server) == f"three {server.pid}".encode()


NAMED = """\
import sys
from {server}.app.wsgiapp import WSGIApplication


class Named(WSGIApplication):
    def load_config(self):
        super().load_config()
        self.cfg.set("workers", 2)


sys.argv[1:] = ["hello:app", "--workers", "3", "--bind", "127.0.0.1:0"]
Named("%(prog)s [OPTIONS] [APP_MODULE]").run()
"""


@pytest.mark.parametrize("of", [STANCHION, GUNICORN], ids=lambda kind: kind.name)
def test_a_program_may_read_the_command_line_and_name_the_app(serve: Serve, program: Program, of: Kind) -> None:
    server = serve("", bind="", kind=program.kind(of, NAMED.format(server=of.name)))
    assert answer(server) == b"hello\n"
    ready = r"worker ready|Booting worker"
    eventually(lambda: len(list(server.log.matches(ready))) == 2, "there are two workers, not three")


BARE = """\
from {server}.app.wsgiapp import WSGIApplication

WSGIApplication("%(prog)s [OPTIONS] [APP_MODULE]").run()
"""

SAYING = """\
def app(environ, start_response):
    start_response("200 OK", [])
    return [b"{word}"]
"""


@pytest.mark.parametrize("of", [STANCHION, GUNICORN], ids=lambda kind: kind.name)
def test_a_reload_finds_the_config_file_and_another_app_though_the_app_lies_elsewhere(
    build: Serve, program: Program, of: Kind
) -> None:
    server = build("", "--chdir", "site", kind=program.kind(of, BARE.format(server=of.name)))
    (server.home / "site").mkdir()
    for word in ("one", "two"):
        (server.home / "site" / f"{word}.py").write_text(SAYING.format(word=word))
    (server.home / "gunicorn.conf.py").write_text("wsgi_app = 'one:app'\n")
    server.start()
    assert answer(server) == b"one"
    if of is GUNICORN:  # which goes to where it was, but looks for the file in `site`
        return
    (server.home / "gunicorn.conf.py").write_text("wsgi_app = 'two:app'\n")
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation 2")
    assert answer(server) == b"two"


PASTE = """\
[app:main]
paste.app_factory = shop:make
"""


@pytest.mark.parametrize("of", [STANCHION, GUNICORN], ids=lambda kind: kind.name)
def test_the_command_line_of_a_program_may_name_a_paste_file(build: Serve, program: Program, of: Kind) -> None:
    server = build("", "--paste", "shop.ini", kind=program.kind(of, BARE.format(server=of.name)))
    (server.home / "shop.ini").write_text(PASTE)
    (server.home / "shop.py").write_text(SAYING.format(word="pasted") + "\ndef make(global_conf):\n    return app\n")
    assert answer(server.start()) == b"pasted"


FAILING = [
    (
        'self.cfg.set("workers", 0)',
        "setting `workers` from the program: expected a whole number >= 1, two such as 2..8, or auto, got 0",
    ),
    ('self.cfg.set("wrokers", 1)', "there is no setting 'wrokers'"),
    ('self.cfg.set("dirty_apps", ["a:b"])', "dirty_apps = ['a:b'] is gunicorn's and not supported"),
    ('self.cfg.set("post_fork", "nowhere.at_all")', "the hook post_fork names 'nowhere.at_all'"),
    ("self.cfg.set('post_fork', lambda: 1)", "the hook post_fork must take (server, worker)"),
]


@pytest.mark.parametrize(("line", "reason"), FAILING)
def test_a_setting_that_cannot_be_stops_the_program(program: Program, line: str, reason: str) -> None:
    head = "from stanchion.app.base import BaseApplication\nclass A(BaseApplication):\n"
    done = program.failed(f"{head} def load_config(self): {line}\nA()")
    assert done.returncode == EXIT_USAGE
    assert reason in done.stderr


THREADED = """\
import threading
from stanchion.app.base import BaseApplication

threading.Thread(target=threading.Event().wait, args=(60,), name="pusher", daemon=True).start()


class A(BaseApplication):
    def load_config(self):
        self.cfg.set("bind", "127.0.0.1:0")

    def load(self):
        return None


A().run()
"""


def test_threads_of_the_program_are_refused_by_their_names(program: Program) -> None:
    done = program.failed(THREADED)
    assert done.returncode == EXIT_USAGE
    assert 'the master has 1 thread: "pusher"' in done.stderr


def test_an_app_that_is_none_is_told(program: Program) -> None:
    done = program.failed(
        THREADED.replace("threading.Thread", "(lambda **_: threading.Thread())").replace(".start()", "")
    )
    assert done.returncode == 4
    assert "the factory returned None, which cannot be called" in done.stderr
