"""The reports of tools, as the tools wrote them (data/): of eight requests to a server that served all (fine), and to
one that answered 503, 502, a reset and 200 in turn (mixed)."""

from pathlib import Path

import pytest

from stanchion_lab.load import ab, httperf, oha, siege, vegeta
from stanchion_lab.load.figures import of_requests
from stanchion_lab.load.offered import Failed
from stanchion_lab.result import BROKEN, LATE, OUTCOMES, REFUSED

DATA = Path(__file__).parent / "data"
FINE = {"served": 8}
MIXED = {"served": 2, "told": 2, "gateway": 2, "broken": 2}


def lines(name: str) -> list[str]:
    return (DATA / name).read_text().splitlines(keepends=True)


def outcomes(figures: dict[str, float]) -> dict[str, float]:
    return {outcome: figures[outcome] for outcome in OUTCOMES if figures[outcome]}


@pytest.mark.parametrize(("name", "expected"), [("fine", FINE), ("mixed", MIXED)])
def test_ab(name: str, expected: dict[str, float]) -> None:
    report = ab.read(lines(f"{name}.ab.out"), lines(f"{name}.ab.err"))
    assert report.took_s is not None
    figures, latencies_ms = ab.told(report, report.took_s, (DATA / f"{name}.ab.tsv").read_text().splitlines())
    assert outcomes(figures) == expected
    assert report.words.startswith("Server Software:") and "Complete requests:      8" in report.words
    assert "X-Worker" not in report.words
    # ab does not say which latency belongs to which request of the others.
    assert len(latencies_ms) == (8 if name == "fine" else 0)
    assert ("latency_ms.p99" in figures) == (name == "fine")


def test_ab_latencies_and_workers() -> None:
    report = ab.read(lines("fine.ab.out"), [])
    figures, latencies_ms = ab.told(report, 0.066, (DATA / "fine.ab.tsv").read_text().splitlines())
    assert report.shares == {"1": 8}
    # ab's own table "Connection Times" has the same figures.
    total = next(line.split() for line in report.words.splitlines() if line.startswith("Total:"))
    assert min(latencies_ms) == figures["latency_ms.min"] == float(total[1])
    assert max(latencies_ms) == figures["latency_ms.max"] == float(total[-1])
    assert round(figures["latency_ms.mean"]) == float(total[2])
    assert figures["per_s"] == pytest.approx(8 / 0.066)


def test_ab_without_a_report() -> None:
    assert ab.read(["Benchmarking 127.0.0.1 (be patient)..."], ["apr_pollset_poll: timeout\n"]).took_s is None


def test_ab_refused() -> None:
    errors = ["apr_socket_recv: Connection refused (111)\n"] * 3
    report = ab.read(["Server Software:\n", "Complete requests:      4\n"], errors)
    assert outcomes(ab.told(report, 1.0, [""])[0]) == {REFUSED: 3, BROKEN: 1}


@pytest.mark.parametrize(("name", "expected"), [("fine", FINE), ("mixed", MIXED)])
def test_httperf(name: str, expected: dict[str, float]) -> None:
    report = httperf.read(lines(f"{name}.httperf.out"))
    assert report.took_s is not None
    figures = httperf.told(report, report.took_s)
    assert outcomes(figures) == expected
    assert figures["unsent"] == 0
    assert "Reply status:" in report.words and "RH0" not in report.words
    assert ("latency_ms.p50" in figures) == (name == "fine")


def test_httperf_latencies() -> None:
    report = httperf.read(lines("fine.httperf.out"))
    figures = httperf.told(report, 1.0)
    said = next(line for line in report.words.splitlines() if line.startswith("Connection time [ms]: min"))
    names = {"min": "min", "mean": "avg", "max": "max", "p50": "median", "stddev": "stddev"}
    for ours, theirs in names.items():
        assert f"{theirs} {figures[f'latency_ms.{ours}']} " in f"{said} "


def test_httperf_errors() -> None:
    """Each kind has its outcome; what it could not begin is no request."""
    report = httperf.read(
        [
            "Total: connections 20 requests 12 replies 0 test-duration 2.000 s\n",
            "Errors: total 20 client-timo 1 socket-timo 2 connrefused 3 connreset 4\n",
            "Errors: fd-unavail 5 addrunavail 2 ftab-full 1 other 2\n",
        ]
    )
    figures = httperf.told(report, 2.0)
    assert outcomes(figures) == {LATE: 3, REFUSED: 3, BROKEN: 6}
    assert (figures["unsent"], figures["requests"]) == (8, 12)


@pytest.mark.parametrize(("name", "expected"), [("fine", FINE), ("mixed", MIXED)])
def test_siege(name: str, expected: dict[str, float]) -> None:
    report = siege.read(lines(f"{name}.siege.out"), lines(f"{name}.siege.err"))
    assert report.took_s
    requests = siege.told(report, asked=0, clients=2)
    figures = of_requests(requests, report.took_s)
    assert outcomes(figures) == expected
    # Its own figures, to their last digit.
    words = {line.partition(":")[0]: line.partition(":")[2].split() for line in report.words.splitlines()}
    assert figures["served"] == float(words["Transactions"][0])
    assert figures["per_s"] == pytest.approx(float(words["Transaction rate"][0]), abs=0.01)
    assert figures["latency_ms.max"] == 1e3 * float(words["Longest transaction"][0])


@pytest.mark.parametrize(
    ("asked", "clients", "late"),
    [(8, 2, 0), (9, 2, 1), (100, 2, 2)],
    ids=["all have ended", "one is under way", "most were never begun"],
)
def test_siege_that_was_stopped(asked: int, clients: int, late: int) -> None:
    report = siege.read(lines("mixed.siege.out"), lines("mixed.siege.err"))
    requests = siege.told(report, asked, clients)
    assert outcomes(of_requests(requests, 1.0)) == {**MIXED, **({LATE: late} if late else {})}


def test_siege_says_who_refused_and_who_was_late() -> None:
    report = siege.read(
        [],
        [
            "[error] socket: unable to connect sock.c:282: Connection refused\n",
            "[error] socket: read error: Connection timed out\n",
            "Transactions:\t\t           0 hits\n",
            "Failed transactions:\t           3\n",
        ],
    )
    assert outcomes(of_requests(siege.told(report, 0, 2), 1.0)) == {REFUSED: 1, LATE: 1, BROKEN: 1}


def test_oha_errors() -> None:
    errors = {
        "Connection refused (os error 111)": 2,
        "Resource temporarily unavailable (os error 11)": 3,
        "timeout": 4,
        "connection closed before message completed": 5,
    }
    assert outcomes(of_requests(oha.lost(errors), 1.0)) == {REFUSED: 5, LATE: 4, BROKEN: 5}
    with pytest.raises(Failed, match="oha could not go on, 7 times"):
        oha.lost({"Too many open files (os error 24)": 7})


TIME = '"timestamp":"2026-11-21T16:00:00.5+00:00","latency":1000000'


@pytest.mark.parametrize(
    ("hit", "outcome", "status"),
    [
        ('{"code":200,%s,"error":""}', "served", 200),
        ('{"code":302,%s,"error":""}', "served", 302),
        ('{"code":502,%s,"error":"502 Bad Gateway"}', "gateway", 502),
        ('{"code":503,%s,"error":"503 Busy"}', "told", 503),
        ('{"code":200,%s,"error":"unexpected EOF"}', BROKEN, 0),
        ('{"code":0,%s,"error":"Get \\"http://a/\\": EOF"}', BROKEN, 0),
        ('{"code":0,%s,"error":"read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer"}', BROKEN, 0),
        ('{"code":0,%s,"error":"dial tcp 0.0.0.0:0->127.0.0.1:2: connect: connection refused"}', REFUSED, 0),
        ('{"code":0,%s,"error":"dial unix a.sock: connect: resource temporarily unavailable"}', REFUSED, 0),
        ('{"code":0,%s,"error":"context deadline exceeded (Client.Timeout exceeded while awaiting)"}', LATE, 0),
    ],
)
def test_vegeta_outcomes(hit: str, outcome: str, status: int) -> None:
    (request,) = vegeta.read([(hit % TIME).encode()])
    assert (request.outcome, request.status, request.latency_s) == (outcome, status, 0.001)


def test_vegeta_is_out_of_descriptors() -> None:
    hit = '{"code":0,%s,"error":"dial tcp: socket: too many open files"}'
    with pytest.raises(Failed, match="vegeta could not go on"):
        vegeta.read([(hit % TIME).encode()])
