"""Each kind of server that experiments can name, started for real in a namespace where somaxconn is small."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_support.trial import Trial, trial
from stanchion_lab import servers
from stanchion_lab.programs import PROGRAMS
from stanchion_lab.scenario import Mistake, Server
from stanchion_lab.servers import KINDS, Address, Place
from stanchion_lab.witness import logs, sockets
from stanchion_lab.witness.kernel import Kernel
from stanchion_lab.workers import workers
from support import netns
from support.patience import eventually
from support.processes import gone

pytestmark = [
    pytest.mark.skipif(bool(netns.unavailable()), reason=netns.unavailable()),
]

SOMAXCONN = 64
WORKERS = 2
SERVE_APPS = ("stanchion", "gunicorn", "granian", "uwsgi", "unicorn", "puma")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Trial]:
    with trial(tmp_path, SOMAXCONN) as made:
        yield made


def need(kind: str) -> None:
    if kind in PROGRAMS and PROGRAMS[kind].version() is None:
        pytest.skip(f"{kind} is not installed here")


def listening(here: Trial) -> list[str]:
    return [one.address for one in here.inside(sockets.listening)]


def of_kind(kind: str, listen: str) -> Server:
    app = "hello.ru" if kind in ("unicorn", "puma") else "hello:app"
    # uWSGI alone refuses to start where the kernel would cut its queue.
    backlog = SOMAXCONN if kind == "uwsgi" else 10 * SOMAXCONN
    return Server(kind=kind, listen=listen, app=app, workers=WORKERS, backlog=backlog)


@pytest.mark.parametrize("listen", ["127.0.0.1:8000", "unix:app.sock"])
@pytest.mark.parametrize("kind", SERVE_APPS)
def test_a_server_answers_logs_and_leaves_nothing(here: Trial, kind: str, listen: str) -> None:
    need(kind)
    server = of_kind(kind, listen)
    process = here.start("one", server)
    eventually(lambda: len(workers(process.pids())) == WORKERS, f"{kind} has its workers")
    kernel = Kernel({"one": here.address(server)})
    here.inside(kernel.start)
    here.forget()

    assert [here.ask(server) for _ in range(3)] == [200, 200, 200]

    figures = here.inside(kernel.stop)
    assert figures["backlog.one"] == SOMAXCONN, "the kernel has cut it"
    pids = process.pids()
    process.stop()
    for pid in pids:
        gone(pid)
    assert not listening(here)
    assert logs.figures("one", server, here.directory) == {"log.one.requests": 3, "log.one.status.200": 3}


@pytest.mark.parametrize("listen", ["127.0.0.1:8000", "unix:app.sock"])
@pytest.mark.parametrize("behind", ["stanchion", "gunicorn", "uwsgi"])
def test_nginx_hands_on_to_it_and_waits_for_as_many_as_it_is_told(here: Trial, behind: str, listen: str) -> None:
    need("nginx")
    need(behind)
    app = Server(kind=behind, listen=listen, app="plain:app", backlog=SOMAXCONN, values={"protocol": "uwsgi"})
    front = Server(kind="nginx", listen="127.0.0.1:8080", workers=WORKERS, backlog=33)
    here.start("app", app)
    process = here.start("front", front, app)
    eventually(lambda: len(workers(process.pids())) == WORKERS, "nginx has its workers")
    kernel = Kernel({"front": here.address(front)})
    here.inside(kernel.start)
    here.forget()

    assert here.ask(front) == 200

    assert here.inside(kernel.stop)["backlog.front"] == 33
    here.running["app"].stop()
    assert not here.inside(lambda: servers.serves(front, here.address(front))), "502 is no service"
    process.stop()
    assert not listening(here)
    figures = logs.figures("front", front, here.directory)
    # The socket file was removed (ENOENT), or no process listens at it (ECONNREFUSED).
    errno = figures.keys() & {"log.front.errno.2", "log.front.errno.111"}
    assert figures == {
        "log.front.requests": 2,
        "log.front.status.200": 1,
        "log.front.status.502": 1,
        "log.front.closed_early": 0,
        errno.pop(): 1,
    }


def test_a_configuration_of_ones_own_is_taken_as_it_is(here: Trial) -> None:
    need("nginx")
    (here.directory / "files/mine.conf").write_text("""
user nobody; # plain: ok
pid /nowhere/nginx.pid;
daemon on;
events { }
http {
    client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp; uwsgi_temp_path temp; scgi_temp_path temp;
    access_log mine.access.log;
    server { listen 127.0.0.1:8080; location ~ \\.gone$ { return 410; } location / { return 204 $request_id; } }
}
""")
    front = Server(kind="nginx", listen="127.0.0.1:8080", config="mine.conf")
    here.start("mine", front)
    here.forget()
    assert [here.ask(front, "/"), here.ask(front, "/x.gone")] == [204, 410]
    here.running["mine"].stop()
    figures = logs.figures("mine", front, here.directory)
    assert (figures["log.mine.status.204"], figures["log.mine.status.410"]) == (1, 1)


def test_a_program_of_ones_own_is_told_where_to_listen(here: Trial) -> None:
    command = ["{python}", "{files}/serve.py", "{listen}", "{workers}"]
    server = Server(kind="program", listen="127.0.0.1:8000", command=command, workers=3)
    (here.directory / "files/serve.py").write_text("""
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 + int(sys.argv[2]))
        self.end_headers()

host, port = sys.argv[1].split(":")
HTTPServer((host, int(port)), Handler).serve_forever()
""")
    process = here.start("own", server)
    here.forget()
    assert here.ask(server) == 203
    assert workers(process.pids()) == [process.root.pid]
    process.stop()
    assert logs.figures("own", server, here.directory) == {"log.own.requests": 1, "log.own.status.203": 1}


@pytest.mark.parametrize(
    ("server", "complaint"),
    [
        (Server(kind="gunicorn", listen="127.0.0.1:8000"), "needs an app"),
        (Server(kind="program", listen="127.0.0.1:8000"), "needs a command"),
        (Server(kind="gunicorn", listen="8000", app="hello:app"), "neither HOST:PORT nor unix:PATH"),
        (Server(kind="gunicorn", listen=f"unix:{'x' * 200}", app="hello:app"), "too long"),
        (Server(kind="unicorn", listen="127.0.0.1:8000", app="none.ru"), "none.ru"),
        (Server(kind="nginx", listen="127.0.0.1:8000", config="none.conf"), "none.conf"),
        (Server(kind="nginx", listen="127.0.0.1:8000"), "no server behind it"),
    ],
)
def test_what_cannot_be_started_is_the_operators_mistake(tmp_path: Path, server: Server, complaint: str) -> None:
    need(server.kind)
    with pytest.raises(Mistake, match=complaint):
        KINDS[server.kind].start(
            "one", server, {}, Place(tmp_path, (tmp_path, Path(servers.__file__).parent / "experiments/files"))
        )


def test_options_come_last_and_the_environment_wins(tmp_path: Path) -> None:
    server = Server(
        kind="gunicorn",
        listen="unix:a.sock",
        app="hello:app",
        options=["--threads", "4"],
        environment={"PYTHONUNBUFFERED": "", "SECONDS": "2"},
    )
    start = KINDS["gunicorn"].start("one", server, {}, Place(tmp_path, (tmp_path,)))
    assert start.argv[0] == sys.executable
    assert start.argv[-2:] == ["--threads", "4"]
    assert (start.environment["PYTHONUNBUFFERED"], start.environment["SECONDS"]) == ("", "2")
    assert str(tmp_path) in start.environment["PYTHONPATH"]
    assert str(Address.of(server, tmp_path)) == f"unix:{tmp_path}/a.sock"
