"""A worker ends without taking its modules and objects apart, and loses nothing that the app has written."""

import signal
from pathlib import Path

import pytest

from support.gate import Gate
from support.server import Serve

pytestmark = pytest.mark.own("gunicorn's workers take apart what they share with others, and copy it so")


@pytest.mark.parametrize("arguments", [["--preload"], ["--no-preload"], ["--preload", "--threads", "2"]])
def test_files_are_written_and_objects_are_left_as_they_are(
    serve: Serve, gate: Gate, tmp_path: Path, arguments: list[str]
) -> None:
    server = serve("imports.leaves:held_back", *arguments, env={"HELD_BACK": str(tmp_path), **gate.environment})
    with server.connect() as wire:
        assert wire.get("/").text == "begun"
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.wait_end()
    assert [(tmp_path / name).read_text() for name in ("since import", "since request")] == ["written"] * 2
    assert gate.announced() == []
