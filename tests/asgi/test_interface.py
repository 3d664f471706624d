"""The interface by which the app is called, where the app itself decides: a server made for the other starts again."""

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from support import processes
from support.address import Address
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.ports import LOOPBACK, row_of_ports
from support.server import APPS, STANCHION, Serve, Server
from support.wire import BrokenOff, Wire, request

pytestmark = pytest.mark.own("gunicorn is told by -k what the app is")

EXIT_APP_LOAD = 4
TWO_HOUSES_S = 2 * PATIENCE_S
"""The time limit of tests in which the server starts twice."""

ASYNCHRONOUS = r"INFO\] the app is asynchronous \(ASGI\): the {} starts again for it"
SYNCHRONOUS = r"INFO\] the app is a WSGI app: the {} starts again for it"
AGAIN = r"INFO\] the app is imported once more: --interface {} saves that"
"""The log says so if the process that has imported the app cannot serve it."""


@pytest.fixture
def kind_file(tmp_path: Path) -> Path:
    """The file that sets the app's interface at its next import."""
    kind_file = tmp_path / "KIND"
    kind_file.write_text("asgi")
    return kind_file


@pytest.fixture
def env(kind_file: Path, gate: Gate) -> dict[str, str]:
    return {"KIND": str(kind_file), **gate.environment}


def imports(gate: Gate) -> int:
    """How many there were since the last look."""
    return len([line for line in gate.announced() if line.startswith("loaded ")])


def ask(server: Server) -> str:
    with server.connect() as wire:
        answer = wire.get("/")
    assert answer.status == 200, answer.text
    return answer.text.partition(" ")[0]


def in_accept_queue(port: int) -> int:
    """How many connections wait in the kernel: the receive queue of a socket that listens (proc_pid_net(5), `tcp`)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
    return sum(int(row[4].partition(":")[2], 16) for row in listening)


def test_an_asynchronous_app_is_found_and_served(serve: Serve, gate: Gate, env: dict[str, str]) -> None:
    gate.open()
    server = serve("imports.loaded:app", "-w", "2", env=env)
    assert {ask(server) for _ in range(10)} == {"asgi"}
    assert len(server.log.matches(ASYNCHRONOUS.format("server"))) == 1
    assert imports(gate) == 1
    assert not server.log.matches(AGAIN.format("asgi"))
    assert len(server.log.matches(r"ready: 2 workers")) == 1
    assert len(server.log.matches(r"worker ready .* generation=2")) == 2
    assert not server.log.matches(r"ERROR|generation=1")


def test_so_it_is_if_each_worker_imports_it(serve: Serve, gate: Gate, env: dict[str, str]) -> None:
    gate.open()
    server = serve("imports.loaded:app", "-w", "2", "--no-preload", env=env)
    assert {ask(server) for _ in range(10)} == {"asgi"}
    assert len(server.log.matches(ASYNCHRONOUS.format("server"))) == 1
    assert len(server.log.matches(AGAIN.format("asgi"))) == 1
    # Each of the second house's workers, and of the first one's those that came that far.
    assert 3 <= imports(gate) <= 4
    assert not server.log.matches(r"ERROR|worker ready .* generation=1")


FACTORY = "imports.loaded:make()"


def test_an_app_that_a_function_makes_is_made_once(serve: Serve, gate: Gate, env: dict[str, str]) -> None:
    gate.open()
    server = serve(FACTORY, env=env)
    assert ask(server) == "asgi"
    assert gate.announced().count("made") == 1


def test_one_that_no_fork_brings_to_workers_is_served_by_the_process_that_has_imported_it(
    serve: Serve, gate: Gate, env: dict[str, str]
) -> None:
    """Interface, threads and app are found in one go."""
    gate.open()
    server = serve("imports.loaded:app", env=env | {"THREAD": "yes"})
    assert ask(server) == "asgi"
    server.log.wait('the app is not preloaded, as its import left 1 thread: "stays": ')
    assert imports(gate) == 1
    assert len(server.log.matches("becomes worker 0")) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--interface", "asgi"],
        ["-k", "asgi"],
        ["-k", "uvicorn.workers.UvicornWorker"],
        ["-k", "uvicorn_worker.UvicornH11Worker"],
    ],
)
def test_an_app_whose_interface_is_given_is_imported_once(
    serve: Serve, gate: Gate, env: dict[str, str], words: list[str]
) -> None:
    gate.open()
    server = serve("imports.loaded:app", *words, env=env)
    assert ask(server) == "asgi"
    assert imports(gate) == 1
    assert not server.log.matches("starts again")


@pytest.mark.parametrize("preload", ["--preload", "--no-preload"])
@pytest.mark.parametrize(
    ("is_called", "words", "told"),
    [
        ("asgi", ["--interface", "wsgi"], r"the app is asynchronous \(ASGI\), .* from command line says wsgi; "),
        ("wsgi", ["-k", "asgi"], "the app is a WSGI app, .* from command line says asgi; "),
    ],
)
def test_an_app_that_is_not_what_is_said_is_refused(
    build: Serve,
    gate: Gate,
    kind_file: Path,
    env: dict[str, str],
    is_called: str,
    words: list[str],
    told: str,
    preload: str,
) -> None:
    gate.open()
    kind_file.write_text(is_called)
    server = build("imports.loaded:app", *words, preload, env=env).launch()
    assert server.exit_code() == EXIT_APP_LOAD
    server.log.wait_end()
    assert server.log.matches(f"cannot load the app: {told}leave that out, or say {is_called}")


def test_clients_that_come_while_the_app_is_imported_are_served_by_the_second_house(
    build: Serve, gate: Gate, env: dict[str, str]
) -> None:
    with row_of_ports(1) as port:
        server = build("imports.loaded:app", "-w", "2", bind=f"{LOOPBACK}:{port}", env=env).launch()
        gate.announcement()
        address = Address(LOOPBACK, port)
        wires = [Wire.connect(address) for _ in range(5)]
        for wire in wires:
            wire.send(request("GET", "/"))
        gate.let_pass(1)
        server.wait_until_ready()
        for wire in wires:
            answer = wire.response()
            assert (answer.status, answer.text[:4]) == (200, "asgi")
            wire.close()


def test_operators_are_answered_while_the_app_is_imported(build: Serve, gate: Gate, env: dict[str, str]) -> None:
    with row_of_ports(2) as port:
        admin = ("--admin", f"{LOOPBACK}:{port + 1}", "--admin-allowed-host", "test")
        server = build("imports.loaded:app", *admin, bind=f"{LOOPBACK}:{port}", env=env).launch()
        gate.announcement()

        def is_answered() -> bool:
            try:
                with Wire.connect(Address(LOOPBACK, port + 1)) as wire:
                    return (wire.get("/live").status, wire.get("/ready").status) == (200, 503)
            except (OSError, BrokenOff):
                return False  # not yet

        eventually(is_answered, "an operator is answered")
        gate.let_pass(1)
        server.wait_until_ready()
        with Wire.connect(Address(LOOPBACK, port + 1)) as wire:
            assert wire.get("/ready").status == 200
            status = wire.get("/status").json()
        assert (status["generation"], status["state"]) == (2, "serving")


@pytest.mark.parametrize("words", [["--interface", "asgi"], []], ids=["said", "auto"])
def test_probes_on_the_port_of_the_app_are_answered_once_it_is_known_what_the_app_is(
    build: Serve, gate: Gate, env: dict[str, str], words: list[str]
) -> None:
    with row_of_ports(1) as port:
        server = build("imports.loaded:app", "--health-path", "/-", *words, bind=f"{LOOPBACK}:{port}", env=env).launch()
        gate.announcement()
        with Wire.connect(Address(LOOPBACK, port)) as wire:
            if words:
                assert (wire.get("/-/live").status, wire.get("/-/ready").status) == (200, 503)
                gate.let_pass(1)
            else:
                wire.send(request("GET", "/-/live"))
                # It waits outside until it is known.
                eventually(lambda: in_accept_queue(port) == 1, "it waits")
                gate.let_pass(1)
                assert wire.response().status == 200
        server.wait_until_ready()


def test_a_reload_brings_an_app_of_the_other_kind_and_the_next_one_expects_it(
    serve: Serve, gate: Gate, kind_file: Path, env: dict[str, str]
) -> None:
    gate.open()
    kind_file.write_text("wsgi")
    server = serve("imports.loaded:app", "-w", "2", env=env)
    assert (ask(server), imports(gate)) == ("wsgi", 1)
    generation = 1
    for is_called, imported in [("asgi", 2), ("asgi", 1), ("wsgi", 2), ("wsgi", 1)]:
        kind_file.write_text(is_called)
        generation += imported
        server.signal(signal.SIGHUP)
        server.log.wait(f"reloaded: generation {generation} serves", within_s=TWO_HOUSES_S)
        assert ({ask(server) for _ in range(5)}, imports(gate)) == ({is_called}, imported)
    assert len(server.log.matches(ASYNCHRONOUS.format("reload"))) == 1
    assert len(server.log.matches(SYNCHRONOUS.format("reload"))) == 1
    assert not server.log.matches("ERROR")


def test_a_reload_whose_app_is_broken_as_it_is_imported_again_changes_nothing(
    serve: Serve, gate: Gate, kind_file: Path, env: dict[str, str]
) -> None:
    kind_file.write_text("wsgi")
    gate.let_pass(1)
    server = serve("imports.loaded:app", env=env)
    gate.announcement()
    kind_file.write_text("asgi")
    server.signal(signal.SIGHUP)
    gate.announcement()
    gate.let_pass(1)
    gate.announcement()
    kind_file.write_text("neither")
    gate.let_pass(1)
    server.log.wait("reload failed: the app could not be loaded: .*KeyError.*; generation 1 goes on serving")
    assert ask(server) == "wsgi"
    gate.open()
    kind_file.write_text("asgi")
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation 5 serves", within_s=TWO_HOUSES_S)
    assert ask(server) == "asgi"


def test_an_app_that_changes_at_each_import_is_not_followed_for_ever(
    build: Serve, gate: Gate, kind_file: Path, env: dict[str, str]
) -> None:
    server = build("imports.loaded:app", "--no-preload", env=env).launch()
    gate.announcement()
    gate.let_pass(1)
    gate.announcement()
    kind_file.write_text("wsgi")
    gate.let_pass(1)
    assert server.exit_code() == EXIT_APP_LOAD
    server.log.wait_end()
    assert server.log.matches("at one import and a WSGI app at the next: say what it is by --interface")
    assert imports(gate) == 0


def test_a_new_master_knows_it_from_the_one_before(serve: Serve, gate: Gate, env: dict[str, str]) -> None:
    gate.open()
    server = serve("imports.loaded:app", "-w", "2", env=env)
    server.signal(signal.SIGUSR2)
    found = server.log.wait(r"upgraded: the new master (\d+) serves", within_s=TWO_HOUSES_S)
    server.follow(int(found[1]))
    assert {ask(server) for _ in range(5)} == {"asgi"}
    assert len(server.log.matches(ASYNCHRONOUS.format("server"))) == 1, "of the first master"
    assert imports(gate) == 2


def test_a_new_master_finds_that_the_app_has_become_another_kind(
    serve: Serve, gate: Gate, kind_file: Path, env: dict[str, str]
) -> None:
    gate.open()
    server = serve("imports.loaded:app", "-w", "2", env=env)
    assert imports(gate) == 1
    kind_file.write_text("wsgi")
    server.signal(signal.SIGUSR2)
    found = server.log.wait(r"upgraded: the new master (\d+) serves", within_s=TWO_HOUSES_S)
    server.follow(int(found[1]))
    assert {ask(server) for _ in range(5)} == {"wsgi"}
    assert len(server.log.matches(SYNCHRONOUS.format("server"))) == 1
    assert imports(gate) == 1


def test_a_template_or_worker_that_is_replaced_is_of_the_house_for_it(
    serve: Serve, gate: Gate, env: dict[str, str]
) -> None:
    gate.open()
    server = serve("imports.loaded:app", "--preload", env=env)
    for name in ("stanchion-tmpl", "stanchion-work"):
        lost = server.of_name(name)[0]
        lost.kill()
        eventually(lambda lost=lost: not lost.is_running(), "it is reaped")
    assert ask(server) == "asgi"
    eventually(lambda: imports(gate) >= 0 and server.log.matches("worker ready .* generation=2"), "another worker")
    assert len(server.log.matches(ASYNCHRONOUS.format("server"))) == 1


def test_a_worker_that_imports_another_kind_of_app_than_the_server_has_is_told_of(
    serve: Serve, gate: Gate, kind_file: Path, env: dict[str, str]
) -> None:
    gate.open()
    kind_file.write_text("wsgi")
    server = serve("imports.loaded:app", "-w", "2", "--no-preload", env=env)
    kind_file.write_text("asgi")
    lost = server.of_name("stanchion-work")[0]
    lost.kill()
    server.log.wait(r"ERROR\] the app has become asynchronous \(ASGI\) since it was loaded: reload the server")
    assert ask(server) == "wsgi"
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation 3 serves")
    assert ask(server) == "asgi"
    assert len(server.log.matches("the app has become")) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_it_leaves_when_it_is_told_to_between_the_two_imports(
    build: Serve, gate: Gate, env: dict[str, str], number: signal.Signals
) -> None:
    server = build("imports.loaded:app", "--no-preload", env=env).launch()
    gate.announcement()
    gate.let_pass(1)
    gate.announcement()
    server.signal(number)
    gate.open()
    assert server.exit_code() == 0


LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(name)s|%(levelname)s|%(message)s"}},
    "handlers": {"file": {"class": "logging.FileHandler", "filename": "server.log", "formatter": "plain"}},
    "root": {"level": "INFO", "handlers": ["file"]},
    "loggers": {"gunicorn.error": {"handlers": ["file"], "propagate": False}},
}


def test_handlers_of_the_operators_get_what_the_server_logs_of_both_houses(
    build: Serve, gate: Gate, env: dict[str, str]
) -> None:
    gate.open()
    server = build("imports.loaded:app", bind="unix:socket", env=env)
    (server.home / "gunicorn.conf.py").write_text(f"logconfig_dict = {LOGGING!r}")
    server.launch()
    path = server.home / "server.log"

    def told() -> list[str]:
        return path.read_text().splitlines() if path.exists() else []

    eventually(lambda: any("ready: 1 worker" in line for line in told()), "the server is ready")
    server.addresses = [Address.parse(f"unix:{server.home}/socket")]
    assert ask(server) == "asgi"
    kept = [line for line in told() if "starts again" in line or "ready: " in line]
    assert [line.rpartition("|")[2].partition(":")[0] for line in kept] == ["the app is asynchronous (ASGI)", "ready"]


def test_a_daemon_is_there_once_the_second_house_serves(tmp_path: Path, gate: Gate, env: dict[str, str]) -> None:
    gate.open()
    home = tmp_path / "daemon"
    home.mkdir()
    with row_of_ports(1) as port:
        done = subprocess.run(
            [*STANCHION.command, "-D", "--pid", "pid", "--bind", f"{LOOPBACK}:{port}", "imports.loaded:app"],
            cwd=home,
            env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(APPS), **env},
            capture_output=True,
            text=True,
            timeout=TWO_HOUSES_S,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        master = psutil.Process(int((home / "pid").read_text()))
        session = os.getsid(master.pid)
        try:
            with Wire.connect(Address(LOOPBACK, port)) as wire:
                assert wire.get("/").text.startswith("asgi")
        finally:
            master.send_signal(signal.SIGINT)
            eventually(lambda: not processes.of_session(session), "the daemon has left")
    assert imports(gate) == 1


@pytest.mark.parametrize(
    ("words", "code"), [([], 0), (["--interface", "asgi"], 0), (["--interface", "wsgi"], EXIT_APP_LOAD)]
)
def test_a_check_alone_reports_the_same(
    tmp_path: Path, gate: Gate, env: dict[str, str], words: list[str], code: int
) -> None:
    gate.open()
    done = subprocess.run(
        [*STANCHION.command[:-1], "check", "--load", *words, "imports.loaded:app"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(APPS), **env},
        capture_output=True,
        text=True,
        timeout=TWO_HOUSES_S,
        check=False,
    )
    assert done.returncode == code
    assert ("cannot load the app: the app is asynchronous" in done.stderr) == (code != 0)
    assert imports(gate) == 1
