"""Handlers that write to the server's logs, and files of handlers that are opened again."""

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stanchion import server_log
from stanchion.scribe import Scribe


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that go to the error log."""
    lines: list[str] = []
    monkeypatch.setattr(server_log, "_stanchion", SimpleNamespace(log=lambda _level, text: lines.append(text)))
    return lines


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[logging.FileHandler]]:
    """Two handlers of one logger."""
    logger = logging.getLogger("tests.files")
    handlers = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        handlers.append(logging.FileHandler(tmp_path / name / "log"))
        logger.addHandler(handlers[-1])
    yield handlers
    for handler in handlers:
        logger.removeHandler(handler)
        handler.close()


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("gunicorn.access", logging.INFO, "", 0, text, None, None)


def test_an_access_log_that_takes_nothing_is_told_of_now_and_then_with_a_count(
    tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "missing" / "access.log"
    configuration: Any = SimpleNamespace(effective=SimpleNamespace(values={"accesslog": str(path)}))
    handler = server_log._AccessLog(configuration)
    now = 1000.0
    monkeypatch.setattr(server_log, "time", SimpleNamespace(monotonic=lambda: now))
    for number in range(5):
        handler.handle(record(f"{number}"))
    now += 11
    handler.handle(record("later"))
    assert [line.rpartition(" ")[2] for line in told] == ["lines=1", "lines=5"]
    assert all(str(path) in line for line in told)
    assert capfd.readouterr().err == ""
    path.parent.mkdir()
    handler.handle(record("written"))
    assert path.read_text() == "written\n"
    assert len(told) == 2


def test_a_file_that_cannot_be_opened_anew_goes_on_and_keeps_no_other_from_it(
    files: list[logging.FileHandler], told: list[str]
) -> None:
    one, two = (Path(handler.baseFilename) for handler in files)
    for path in (one, two):
        path.rename(path.with_name("old"))
    one.mkdir()
    server_log.reopen_each_file()
    assert len(told) == 1
    assert str(one) in told[0]
    for handler in files:
        handler.handle(record("after"))
    assert one.with_name("old").read_text() == "after\n"
    assert two.with_name("old").read_text() == ""
    assert two.read_text() == "after\n"


ACCESS = (
    '{"access":{"time_us":1,"took_us":1,"status":200,"bytes":0,"remote_port":0,"pid":1,"method":"GET","target":"/",'
    '"path":"/","query":"","protocol":"HTTP/1.1","scheme":"http","remote_addr":"","server_name":"","server_port":"",'
    '"reason":"OK","fields":[],"answer":[],"atoms":{}}}'
)


NONSENSE = ("", "{", "[]", '{"access":{}}', ACCESS[:-9], ACCESS.replace('"took_us":1', '"took_us":""'))


@pytest.mark.parametrize("line", NONSENSE)
def test_a_line_that_makes_no_sense_is_not_taken_for_a_fault_of_the_operators(line: str) -> None:
    scribe = Scribe.__new__(Scribe)

    def access(*_: object) -> None:
        raise ValueError("of the operator's own code")

    scribe._logger = SimpleNamespace(access=access)
    assert scribe.access(line) is False
    with pytest.raises(ValueError, match="of the operator's own code"):
        scribe.access(ACCESS)
