"""The start: settings from every side, the app loaded once, and a plain error for a broken app."""

from pathlib import Path

import pytest

from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.seats import seats
from support.server import Serve, Server

EXIT_BAD_USAGE = 2
EXIT_APP_NOT_LOADED = 4


def test_web_concurrency_of_the_environment_is_the_number_of_workers(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env={"WEB_CONCURRENCY": "3", **gate.environment})
    assert len({seat.pid for seat in seats(server, gate, 3)}) == 3


def test_the_command_line_wins_over_the_environment(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--workers", "2", env={"WEB_CONCURRENCY": "3", **gate.environment})
    seats(server, gate, 2)


def test_arguments_of_the_environment(serve: Serve, gate: Gate, kind_name: str) -> None:
    environment = {f"{kind_name.upper()}_CMD_ARGS": "--workers 2", **gate.environment}
    seats(serve("waiting:app", env=environment), gate, 2)


@pytest.mark.privileges
def test_a_gunicorn_configuration_file_is_read_and_may_compute(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    config = tmp_path / "gunicorn.conf.py"
    config.write_text(
        "import os\nworkers = len(['a', 'b'])\nwsgi_app = 'waiting:app'\nloglevel = os.environ['LEVEL']\n"
    )
    server = serve("", "--config", str(config), env={"LEVEL": "info", **gate.environment})
    seats(server, gate, 2)


def test_variables_can_be_set_for_the_app(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "static.bin").write_bytes(b"content")
    server = serve("bodies:files", "--env", f"FILE={tmp_path}/static.bin", "--env", f"GATE={tmp_path}/gate")
    with server.connect() as wire:
        assert wire.get("/").body == b"content"


@pytest.mark.privileges
def test_chdir_is_where_the_app_is_found(serve: Serve, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "only_here.py").write_text("from hello import app\n")
    server = serve("only_here:app", "--chdir", str(place))
    with server.connect() as wire:
        assert wire.get("/").body == b"hello\n"


def test_pythonpath_is_where_the_app_is_found(serve: Serve, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two" / "only_here.py").write_text("from hello import app\n")
    server = serve("only_here:app", "--pythonpath", f"{tmp_path}/one,{tmp_path}/two")
    with server.connect() as wire:
        assert wire.get("/").body == b"hello\n"


@pytest.mark.parametrize("name", ["instance", "function"])
@pytest.mark.privileges
def test_an_app_may_have_modules_with_the_names_of_those_that_the_server_needs(
    serve: Serve, tmp_path: Path, name: str
) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    for standard in ("token", "traceback"):
        (place / f"{standard}.py").write_text("raise RuntimeError('not the one that was meant')\n")
    (place / "only_here.py").write_text(
        "from hello import app\n"
        "def function(environ, start_response):\n"
        "    if environ['PATH_INFO'] == '/broken':\n"
        "        raise ValueError('on request')\n"
        "    return app(environ, start_response)\n"
        "class App:\n"
        "    def __call__(self, environ, start_response):\n"
        "        return function(environ, start_response)\n"
        "instance = App()\n"
    )
    server = serve(f"only_here:{name}", "--chdir", str(place))
    with server.connect() as wire:
        assert wire.get("/").body == b"hello\n"
    with server.connect() as wire:
        assert wire.get("/broken").status == 500
    server.log.wait("ValueError: on request")
    assert "    raise ValueError('on request')" in server.log.text()
    assert "not the one that was meant" not in server.log.text()


@pytest.mark.privileges
def test_the_pid_file_holds_the_masters_pid_and_goes_with_it(serve: Serve, tmp_path: Path) -> None:
    pid_file = tmp_path / "server.pid"
    server = serve("hello:app", "--pid", str(pid_file))
    # Gunicorn writes it after it says that it listens.
    eventually(pid_file.exists, "the pid file is written")
    assert int(pid_file.read_text()) == server.pid
    with server.connect() as wire:
        assert wire.get("/").status == 200
    server.process.terminate()
    server.exit_code()
    assert not pid_file.exists()


@pytest.mark.own("gunicorn does not preload unless told to")
def test_the_app_is_loaded_once_for_all_workers(serve: Serve, gate: Gate) -> None:
    server = serve("imports.loaded:app", "-w", "3", env=gate.environment)
    [line] = gate.announced()
    assert int(line.split()[1]) != server.pid, "the master never imports the app"


@pytest.mark.own("the flag is stanchion's")
def test_without_preload_each_worker_loads_the_app(serve: Serve, gate: Gate) -> None:
    serve("imports.loaded:app", "-w", "3", "--no-preload", env=gate.environment)
    assert len(set(gate.announcements(3))) == 3
    assert gate.announced() == []


@pytest.mark.own("exit codes and words are each server's own")
class TestBrokenApp:
    def give_up(self, build: Serve, app: str, *arguments: str, env: dict[str, str] | None = None) -> Server:
        server: Server = build(app, *arguments, env=env or {}).launch()
        assert server.exit_code() == EXIT_APP_NOT_LOADED
        server.log.wait_end()
        assert not server.log.matches("ready: ")
        return server

    @pytest.mark.parametrize("arguments", [[], ["--no-preload"], ["-w", "4"]])
    def test_an_import_error_is_shown_whole_with_one_line_of_advice(self, build: Serve, arguments: list[str]) -> None:
        server = self.give_up(build, "imports.broken:app", *arguments)
        text = server.log.text()
        assert "Traceback" in text
        assert "imports/broken.py" in text
        assert text.count("ModuleNotFoundError: No module named 'a_module_that_does_not_exist'") == 1, "told once"

    @pytest.mark.parametrize(
        ("app", "named"),
        [
            ("no_such_module:app", "no_such_module"),
            ("hello:missing", "missing"),
            ("hello:text", "text"),
            ("hello:missing()", "missing"),
            ("hello:create_app(unknown=1)", "create_app"),
            ("hello:create_app(", "create_app("),
            ("imports.broken_syntax:app", "broken_syntax"),
        ],
    )
    def test_every_other_way_to_be_broken_is_named_in_the_last_errors(self, build: Serve, app: str, named: str) -> None:
        server = self.give_up(build, app)
        # The acceptor says what it has to say meanwhile, but no errors.
        [reason, consequence] = [entry for entry in server.log.entries() if "[ERROR]" in entry[0]]
        assert named in reason[-1], "a traceback comes before the line that sums it up"
        assert "the server leaves" in consequence[-1]

    def test_it_is_tried_once(self, build: Serve, gate: Gate, tmp_path: Path) -> None:
        (tmp_path / "fails_late.py").write_text("import imports.loaded\nraise RuntimeError('at import')\n")
        server = self.give_up(build, "fails_late:app", "-w", "2", "--pythonpath", str(tmp_path), env=gate.environment)
        assert len(gate.announced()) == 1
        assert "RuntimeError: at import" in server.log.text()


@pytest.mark.own("gunicorn stops, or forks as fast as it can")
def test_workers_that_die_while_booting_are_started_ever_more_slowly(build: Serve, gate: Gate) -> None:
    server = build("imports.loaded:app", "--no-preload", env={"DIES": "1", **gate.environment}).launch()
    server.log.wait_for(r"while booting.*next try in", 3, within_s=2 * PATIENCE_S)
    gate.announced()
    mark = server.log.mark()
    # A window of time, because what is tested is a rate.
    assert not server.log.matches("ready: ")
    with pytest.raises(AssertionError):
        gate.announcements(15, within_s=4)
    assert server.process.poll() is None, "it goes on trying"
    server.log.wait(r"while booting.*next try in", mark)


@pytest.mark.own("gunicorn has a check of its own")
def test_bad_settings_are_named_one_line_each_before_anything_starts(build: Serve) -> None:
    server = build("hello:app", "--workers", "none", "--timeout", "-5").launch()
    assert server.exit_code() == EXIT_BAD_USAGE
    server.log.wait_end()
    assert server.log.matches("workers")
    assert not server.log.matches("Traceback")
