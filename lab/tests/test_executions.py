"""The account of what ran, and of what clients got; and which requests a front has tried again."""

from pathlib import Path

import pytest

from stanchion_lab.result import BROKEN, GATEWAY, SERVED, TOLD
from stanchion_lab.scenario import Server
from stanchion_lab.witness import logs
from stanchion_lab.witness.executions import FILE, accounts, figures


@pytest.mark.parametrize(
    ("ran", "outcomes", "expected"),
    [
        ([], [], {}),
        ([0, 1, 2], [SERVED] * 3, {"ran": 3}),
        # A refusal, and a gateway that got no answer: neither ran.
        ([0], [SERVED, TOLD, GATEWAY], {"ran": 1, "lost": 2}),
        # One ran and its client got no answer.
        ([1, 0], [SERVED, BROKEN], {"ran": 2, "lost": 1, "ran.lost": 1}),
        # One ran three times, another twice, and the last of these was lost in the end.
        ([0, 1, 0, 1, 0], [SERVED, GATEWAY], {"ran": 5, "ran.twice": 2, "lost": 1, "ran.lost": 1}),
        # A count that does not see an execution must not look like a good one.
        ([0], [SERVED, SERVED], {"ran": 1, "ran.never": 1}),
    ],
)
def test_each_request_is_accounted_for(ran: list[int], outcomes: list[str], expected: dict[str, float]) -> None:
    nothing = {"lost": 0, "ran": 0, "ran.twice": 0, "ran.lost": 0, "ran.never": 0}
    assert accounts(ran, outcomes) == {**nothing, **expected}


def test_what_ran_is_in_one_file(tmp_path: Path) -> None:
    assert figures(tmp_path, [SERVED])["ran.never"] == 1
    (tmp_path / FILE).write_text("0\n2\n1\n2\n")
    assert figures(tmp_path, [SERVED] * 3) == accounts([0, 2, 1, 2], [SERVED] * 3)


REQUEST = '"GET /fast HTTP/1.1" 200'
LOGS = {
    "haproxy": [f"10.99.0.254 {REQUEST} 93 app-1 retries={count}" for count in ("0", "1", "+2", "+0", "10")],
    "envoy": [f"{REQUEST} - 5 10.99.0.1:8000 attempts={count}" for count in (1, 2, 3, 10, 1)],
    "nginx": [
        f'{REQUEST} 3 "-" "-" upstream_status={status} request_time=0.005'
        for status in ("200", "502, 200", "504, 503, 200", "-, 200", "-")
    ],
}


@pytest.mark.parametrize("kind", LOGS)
def test_a_front_tells_which_requests_it_has_tried_again(tmp_path: Path, kind: str) -> None:
    name = "front.log" if kind == "haproxy" else "front.access.log"
    (tmp_path / name).write_text("\n".join([*LOGS[kind], "[NOTICE] a line about no request, retries=1"]) + "\n")
    found = logs.figures("front", Server(kind=kind, listen="10.99.0.101:8080"), tmp_path)
    assert (found["log.front.requests"], found["log.front.retried"]) == (5, 3)
