"""The log says once what keeps a server from its start, or from serving many, with the file and what to do."""

import re
from pathlib import Path

import pytest

from support.server import Serve

pytestmark = pytest.mark.own("it is about the words of the log")

EXIT_INTERNAL, EXIT_USAGE, EXIT_APP_LOAD = 1, 2, 4


@pytest.mark.parametrize(
    ("flag", "what", "code"),
    [
        ("--access-logfile", "the acceptor cannot go on: the access log", EXIT_INTERNAL),
        ("--error-logfile", "cannot open the error log", EXIT_USAGE),
        ("--pid", "cannot write the pid file", EXIT_USAGE),
    ],
)
def test_a_file_in_no_directory_is_named_and_so_is_the_cure(
    build: Serve, tmp_path: Path, flag: str, what: str, code: int
) -> None:
    path = tmp_path / "nowhere" / "file"
    server = build("hello:app", flag, str(path)).launch()
    assert server.exit_code() == code
    server.log.wait_end()
    cure = f"make the directory {path.parent}, for the user that"
    wanted = f"{what} {path}: No such file or directory (os error 2); {cure}"
    assert wanted in server.log.text()


def test_a_place_where_nothing_can_be_spooled_names_the_flag(build: Serve, tmp_path: Path) -> None:
    server = build("hello:app", "--tmp-upload-dir", str(tmp_path / "nowhere")).launch()
    assert server.exit_code() != 0
    server.log.wait_end()
    assert re.search(r"spool directory .*nowhere.*--tmp-upload-dir.*--tmpfs /tmp", server.log.text())


def test_few_open_files_are_a_warning_with_the_cure(serve: Serve) -> None:
    server = serve("hello:app", prefix=["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"])
    server.log.wait(r"WARNING\] at most \d+ connections: the limit of open files is 64 .*LimitNOFILE= of the unit")


def test_many_open_files_are_none(serve: Serve) -> None:
    server = serve("hello:app", prefix=["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh"])
    server.log.wait(r"INFO\] at most \d+ connections: the limit of open files is 1024")


@pytest.mark.parametrize("preload", ["--preload", "--no-preload"])
def test_an_import_error_stands_once(build: Serve, tmp_path: Path, preload: str) -> None:
    (tmp_path / "broken.py").write_text("import nonsuch\n")
    server = build("broken:app", preload, "--interface", "wsgi", "--pythonpath", str(tmp_path)).launch()
    assert server.exit_code() == EXIT_APP_LOAD
    server.log.wait_end()
    assert server.log.text().count("it imports 'nonsuch', which this Python does not have") == 1
    server.log.only(r"\] (the app could not be loaded|a worker could not load the app): the server leaves")
