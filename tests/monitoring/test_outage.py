"""The alerts on an outage that was recorded: a real server whose seats hang, scraped as Prometheus does."""

import subprocess
import urllib.request
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from support.clock import Clock
from support.gate import Gate
from support.outage import ARGUMENTS, Outage
from support.patience import PATIENCE_S, eventually
from support.ports import row_of_ports
from support.prometheus import EXAMPLES, PROMTOOL
from support.server import Serve

ALERTS = EXAMPLES / "alerts.yml"
INTERVAL_S = 15
# Scrapes before it, in it and after it.
CALM, HUNG, AFTER = 20, 16, 28

pytestmark = [
    pytest.mark.own("it has metrics"),
    pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed: Debian's package prometheus"),
]


class Recording:
    """Scrapes of a server, whose clock is set forward from one to the next."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url, self._clock = url, clock
        self._values: dict[str, dict[int, float]] = defaultdict(dict)
        self.scrapes = 0

    def scrape(self) -> None:
        self._clock.advance(INTERVAL_S)
        with urllib.request.urlopen(self._url, timeout=PATIENCE_S) as answer:
            families = list(parse_prometheus(answer.read().decode()))
        self._values['up{job="stanchion", instance="shop"}'][self.scrapes] = 1
        for sample in (sample for family in families for sample in family.samples):
            labels = {"job": "stanchion", "instance": "shop", **sample.labels}
            named = ", ".join(f'{name}="{value}"' for name, value in labels.items())
            self._values[f"{sample.name}{{{named}}}"][self.scrapes] = sample.value
        self.scrapes += 1

    def series(self) -> list[str]:
        """The series for `promtool test rules`; `_` is a scrape that had no such series."""
        lines = []
        for name, values in self._values.items():
            said = " ".join(repr(values[at]) if at in values else "_" for at in range(self.scrapes))
            lines.append(f"      - {{series: '{name}', values: '{said}'}}")
        return lines


def firing_at(scrape: int, *alerts: str) -> str:
    """These alerts fire then, and no others; how long queues of this kernel may be is no part of an outage."""
    samples = "".join(f"\n          - {{labels: '{{alertname=\"{name}\"}}', value: 1}}" for name in alerts)
    return (
        '      - expr: count by (alertname) (ALERTS{alertstate="firing", alertname!="StanchionBacklogCut"})\n'
        f"        eval_time: {scrape * INTERVAL_S}s\n        exp_samples: {samples or '[]'}"
    )


def test_each_alert_of_an_outage_fires_in_it_and_only_then(
    serve: Serve, gate: Gate, clock: Clock, tmp_path: Path
) -> None:
    with row_of_ports(1) as port, ExitStack() as stack:
        environment = {**gate.environment, **clock.environment}
        server = serve("waiting:app", "--admin", f"127.0.0.1:{port}", *ARGUMENTS, env=environment)
        recording = Recording(f"http://127.0.0.1:{port}/metrics", clock)
        for _ in range(CALM):
            with server.connect() as wire:
                assert wire.get("/pid?x").status == 200
            recording.scrape()
        outage = Outage(server, gate, stack)
        for _ in range(HUNG):
            outage.come()
            recording.scrape()
        assert set(outage.release()) == {200, 503}
        eventually(lambda: 'stanchion_seats{state="idle"} 4' in scraped(port), "the seats are idle")
        for _ in range(AFTER):
            recording.scrape()

    # Three minutes into it.
    within = CALM + 12
    told = [
        firing_at(CALM - 1),
        firing_at(within, "StanchionLineStanding", "StanchionSeatsStuck", "StanchionTells503"),
        firing_at(CALM + HUNG + AFTER - 1),
    ]
    path = tmp_path / "recorded.yml"
    path.write_text(
        f'rule_files: ["{ALERTS}"]\nevaluation_interval: {INTERVAL_S}s\ntests:\n  - interval: {INTERVAL_S}s\n'
        "    input_series:\n" + "\n".join(recording.series()) + "\n    promql_expr_test:\n" + "\n".join(told) + "\n"
    )
    assert PROMTOOL
    command = [PROMTOOL, "test", "rules", str(path)]
    tested = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3 * PATIENCE_S)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())
