"""Autobahn's fuzzing client (github.com/crossbario/autobahn-testsuite) finds no failure.

Its cases come in groups, which are named by their first number. All of them want what they send echoed.
"""

import ast
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import missing
from support.server import Serve, Server

ROOT = Path(__file__).resolve().parents[2]
CLIENT = Path(os.environ["STANCHION_AUTOBAHN"])
"""Where scripts/make-autobahn has put it, if it could."""
NOT_HERE = "" if (CLIENT / "made").exists() else "NOT TRIED BY AUTOBAHN: its client is not installed"

GROUPS = {
    1: "framing",
    2: "pings and pongs",
    3: "reserved bits",
    4: "opcodes",
    5: "fragmentation",
    6: "UTF-8",
    7: "closing",
    9: "long and many messages",
    10: "messages of the app in frames",
    12: "compression of messages",
    13: "compression as the client wants it",
}
"""The subjects of the groups; Autobahn has no other groups."""
COMPRESSED = ["12.*", "13.*"]
"""Cases of permessage-deflate (RFC 7692)."""
COMPRESSES = "`ws_per_message_deflate`" in (ROOT / "docs/reference/settings.md").read_text()
CASES_MIN, COMPRESSED_MIN = 300, 200
"""Fewer cannot be all others, and all of these."""

GOOD = ("OK", "NON-STRICT", "INFORMATIONAL")
"""NON-STRICT: what came just before a faulty frame was not echoed, as a connection may be failed at once (RFC 6455
section 7.1.7). INFORMATIONAL: the RFC leaves it open."""

WITHIN_S, COMPRESSED_WITHIN_S = 540, 3600
"""The others: half a minute on two idle cores. Those: a thousand messages each, up to 128 KiB long."""

Say = Callable[[str], None]
"""Shows a line at once."""

AGENT = "stanchion"
"""The name of the server in the reports."""

pytestmark = [
    pytest.mark.own("gunicorn has no WebSockets"),
    pytest.mark.skipif(bool(NOT_HERE), reason=missing.allowed(NOT_HERE)),
]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def said(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    return said


@pytest.mark.timeout(WITHIN_S)
def test_autobahn_finds_no_failure(serve: Serve, tmp_path: Path, say: Say) -> None:
    server = serve("sockets:app", "--interface", "asgi")
    results = tried(server, tmp_path, {"cases": ["*"], "exclude-cases": COMPRESSED}, say)
    assert len(results) >= CASES_MIN
    assert [complaint for result in results if (complaint := result.complaint())] == []


@pytest.mark.skipif(not COMPRESSES, reason="stanchion does not compress messages")
@pytest.mark.timeout(COMPRESSED_WITHIN_S)
def test_autobahn_finds_no_failure_in_compression(serve: Serve, tmp_path: Path, say: Say) -> None:
    server = serve("sockets:app", "--interface", "asgi", "--ws-per-message-deflate")
    results = tried(server, tmp_path, {"cases": COMPRESSED}, say)
    assert len(results) >= COMPRESSED_MIN
    assert [complaint for result in results if (complaint := result.complaint())] == []


@dataclass(frozen=True)
class Result:
    """The outcome of a case, in Autobahn's words."""

    case: str
    said: dict[str, Any]

    @property
    def group(self) -> int:
        return int(self.case.partition(".")[0])

    @property
    def verdict(self) -> str:
        """The worse verdict of two: of the messages, and of how the connection ended."""
        verdicts = [self.said["behavior"], self.said["behaviorClose"]]
        return next((verdict for verdict in verdicts if verdict not in GOOD), verdicts[0])

    def complaint(self) -> str:
        if self.verdict in GOOD:
            return ""
        words = ("description", "expectation", "result", "resultClose")
        return f"{self.case} {self.verdict}: {' | '.join(str(self.said[word]) for word in words)}"


def tried(server: Server, home: Path, cases: dict[str, list[str]], say: Say) -> list[Result]:
    """The outcomes of these cases; prints which group begins, and in the end how many of a group had which verdict."""
    spec, reports = home / "spec.json", home / "reports"
    whom = {"agent": AGENT, "url": f"ws://{server.address.host}:{server.address.port}/echo"}
    spec.write_text(json.dumps({"outdir": str(reports), "servers": [whom], **cases}))
    say("")
    with subprocess.Popen(
        [CLIENT / "bin/wstest", "--mode", "fuzzingclient", "--spec", spec],
        cwd=home,
        env={"PYTHONUSERBASE": str(CLIENT), "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as client:
        assert client.stdout
        try:
            lines = list(followed(client.stdout, say))
            assert client.wait() == 0, "".join(lines)
        finally:
            client.kill()
    index = json.loads((reports / "index.json").read_text())[AGENT]
    results = [Result(case, json.loads((reports / entry["reportfile"]).read_text())) for case, entry in index.items()]
    announced = next(ast.literal_eval(line.partition("=")[2].strip()) for line in lines if line.startswith("Cases ="))
    assert sorted(index) == sorted(announced), "".join(lines)
    say(table(results))
    return results


def followed(lines: Iterable[str], say: Say) -> Iterator[str]:
    """The same lines, and a word whenever a group begins."""
    last = ""
    for line in lines:
        yield line
        begun = re.match(r"Running test case ID (\d+)\.", line)
        if begun and begun[1] != last:
            last = begun[1]
            say(f"  {last}: {GROUPS[int(last)]}")


def table(results: list[Result]) -> str:
    """A row for each group: how many cases it has, and what became of them."""
    verdicts = [*GOOD, *sorted({result.verdict for result in results} - set(GOOD))]
    rows = [["", "cases", *verdicts]]
    for number, name in GROUPS.items():
        counts = Counter(result.verdict for result in results if result.group == number)
        if counts:
            rows.append([f"{number} {name}", str(counts.total()), *(str(counts[verdict]) for verdict in verdicts)])
    return "\n".join(f"  {name:34}" + "".join(f"{cell:>15}" for cell in cells) for name, *cells in rows)
