"""The dashboard and the alerts under examples/: a real Prometheus understands them, and finds what they ask for."""

import contextlib
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from support.patience import PATIENCE_S, eventually
from support.ports import row_of_ports
from support.prometheus import EXAMPLES, PROMETHEUS, PROMTOOL, Prometheus
from support.server import Serve
from support.tls import Authority
from support.wire import Wire, request

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "examples" / "grafana" / "stanchion.json"
ALERTS = EXAMPLES / "alerts.yml"
PAGE = ROOT / "docs" / "monitoring.md"
OUTCOMES = ROOT / "docs" / "reference" / "admin.md"

pytestmark = pytest.mark.own("it has metrics")
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed: Debian's package prometheus")
needs_prometheus = pytest.mark.skipif(not PROMETHEUS, reason="prometheus is not installed")


def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text())


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


# ---- As they are written


def test_every_panel_says_what_it_shows_and_asks_by_the_variables():
    variables = {variable["name"] for variable in dashboard()["templating"]["list"]}
    assert variables == {"datasource", "job", "instance"}
    for panel in panels():
        assert panel["title"] and panel["description"] and panel["targets"], panel["id"]
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            asked = re.findall(r"stanchion_\w+(\{[^}]*\})?", target["expr"])
            assert asked and all('job=~"$job", instance=~"$instance"' in labels for labels in asked), target["expr"]


def test_no_panel_lies_upon_another():
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    taken = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    numbers = [panel["id"] for panel in dashboard()["panels"]]
    assert len(numbers) == len(set(numbers))


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL
    return subprocess.run([PROMTOOL, *words], capture_output=True, text=True, check=False, timeout=3 * PATIENCE_S)


@needs_promtool
def test_promtool_has_no_complaint():
    for words in (["rules", "--lint=all", "--lint-fatal", str(ALERTS)], ["config", str(EXAMPLES / "prometheus.yml")]):
        checked = promtool("check", *words)
        assert checked.returncode == 0, checked.stdout + checked.stderr


@needs_promtool
def test_each_alert_fires_where_it_should_and_only_there(tmp_path):
    cases = (Path(__file__).parent / "alerts.test.yml").read_text()
    named = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    assert named and all(f'alertname="{name}"' in cases for name in named), "an alert without a test"
    path = tmp_path / "test.yml"
    path.write_text(cases.replace("{alerts}", str(ALERTS)))
    tested = promtool("test", "rules", str(path))
    assert tested.returncode == 0, tested.stdout + tested.stderr


# ---- Against what a server says


@pytest.fixture(scope="module")
def target(shared_serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of an admin listener whose server has answered requests of an asynchronous app: it has most metrics."""
    pair = Authority(tmp_path_factory.mktemp("authority")).issue("shop.test")
    with row_of_ports(1) as port:
        admin = f"127.0.0.1:{port}"
        told = ("--interface", "asgi", "--admin", admin, "--max-memory", "1G", *pair.arguments())
        server = shared_serve("sockets:app", *told, "--bind", "localhost:0?tls=false")
        for _ in range(20):
            with Wire.connect(server.addresses[1]) as wire:
                wire.send(request("GET", "/", ["Connection: close"]))
                assert wire.response().status == 200
        yield admin


@pytest.fixture(scope="module")
def prometheus(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), target)
    try:
        prometheus.wait_scrapes(3)
        yield prometheus
    finally:
        prometheus.stop()


def filled_in(query: str) -> str:
    """The query as Grafana would send it, with All for each variable."""
    for variable, value in {"$job": ".+", "$instance": ".+", "[$__rate_interval]": "[1m]"}.items():
        query = query.replace(variable, value)
    assert "$" not in query
    return query


@needs_prometheus
def test_each_query_of_the_dashboard_finds_something(prometheus):
    assert len(queries()) >= 30
    # A scrape that took longer than the second that it has, on a busy machine, ends all series until the next one.
    empty = queries()

    def has_found_all() -> bool:
        empty[:] = [query for query in empty if not prometheus.query(filled_in(query))]
        return not empty

    with contextlib.suppress(AssertionError):
        eventually(has_found_all, "each query has found something")
    assert empty == []


NOT_SHOWN = {
    "stanchion_tls_certificate_begins_seconds",  # An alert says it in time
    "stanchion_tls_certificate_expires_seconds",
    "stanchion_line_in_exchange",  # Seats, by state, has them of all lanes
    "stanchion_line_over_target",  # Oldest wait, by lane, says more
    "stanchion_line_seats_max",  # It is a setting
    "stanchion_uptime_seconds",  # Generation has the steps
}


def test_the_dashboard_shows_what_a_server_tells(target: str) -> None:
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=PATIENCE_S) as answer:
        families = list(parse_prometheus(answer.read().decode()))
    told = {f"{one.name}_total" if one.type == "counter" else one.name for one in families}
    asked = {
        re.sub("_(bucket|sum|count)$", "", name) for query in queries() for name in re.findall(r"stanchion_\w+", query)
    }
    assert "stanchion_loop_lag_seconds" in told
    assert told - asked == NOT_SHOWN


@needs_prometheus
def test_the_variables_of_the_dashboard_find_the_server(prometheus, target):
    found = prometheus.series("stanchion_build_info")
    assert [(one["job"], one["instance"]) for one in found] == [("stanchion", target)]


@needs_prometheus
def test_each_alert_asks_for_what_there_is(prometheus):
    # Before their first evaluation it is "unknown".
    eventually(lambda: all(rule["health"] != "unknown" for rule in prometheus.rules()), "the rules are evaluated")
    rules = prometheus.rules()
    assert len(rules) == len(re.findall(r"- alert:", ALERTS.read_text())) > 0
    for rule in rules:
        assert rule["health"] == "ok", rule
        selectors = re.findall(r"(?:stanchion_\w+|up)\{[^}]*\}|stanchion_\w+", rule["query"])
        assert selectors, rule["query"]
        assert [one for one in selectors if not prometheus.series(one)] == [], rule["name"]


@needs_prometheus
def test_the_outcomes_that_alerts_name_are_those_that_the_server_counts(prometheus):
    counted = {one["outcome"] for one in prometheus.series("stanchion_requests_total")}
    assert named_outcomes() <= counted


def named_outcomes() -> set[str]:
    """refused_(a|b)|c, written out."""
    named = set()
    for pattern in re.findall(r'outcome=~"([^"]+)"', ALERTS.read_text()):
        for prefix, group, alone in re.findall(r"(\w+)\(([^)]*)\)|(\w+)", pattern):
            named |= {alone} if alone else {prefix + one for one in group.split("|")}
    assert len(named) > 5
    return named


def test_an_alert_tells_of_each_reason_for_503() -> None:
    rows = re.findall(r"^\| `(refused_\w+)` \| 503: ", OUTCOMES.read_text(), re.MULTILINE)
    assert len(rows) > 5
    assert set(rows) <= named_outcomes()
    explained = re.findall(
        r"`(refused_\w+)`", PAGE.read_text().partition("### StanchionTells503")[2].partition("###")[0]
    )
    assert sorted(explained) == sorted(rows)


@needs_prometheus
def test_each_alert_says_what_to_do(prometheus):
    headings = {"#" + line[4:].strip().lower() for line in PAGE.read_text().splitlines() if line.startswith("### ")}
    for rule in prometheus.rules():
        said = rule["annotations"]
        assert said["summary"] and said["description"]
        page, anchor = said["runbook"].split("#")
        assert page == "docs/monitoring.md" and f"#{anchor}" in headings, said["runbook"]
        assert anchor == rule["name"].lower()
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
