"""A real Prometheus that scrapes one server, with the example configuration that users are given."""

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from support import neighbour
from support.log import Log
from support.patience import PATIENCE_S, eventually

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
EXAMPLES = Path(__file__).parents[2] / "examples" / "prometheus"


def adapted(home: Path, target: str) -> Path:
    """The example with nothing changed but its target, and how often it scrapes."""
    config = (EXAMPLES / "prometheus.yml").read_text()
    for given, here in {
        "scrape_interval: 15s": "scrape_interval: 1s",
        "evaluation_interval: 15s": "evaluation_interval: 1s",
        '"127.0.0.1:8299"': f'"{target}"',
        "- alerts.yml": f"- {EXAMPLES / 'alerts.yml'}",
    }.items():
        assert config.count(given) == 1, f"the example has no {given!r} any more, or more than one"
        config = config.replace(given, here)
    path = home / "prometheus.yml"
    path.write_text(config)
    return path


class Prometheus:
    """A Prometheus with its own directory, at a port that the kernel chose."""

    def __init__(self, home: Path, target: str) -> None:
        assert PROMETHEUS
        self._process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={adapted(home, target)}",
                f"--storage.tsdb.path={home / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert self._process.stderr
        self.log = Log(self._process.stderr)
        self._base = "http://" + self.log.wait(r'msg="Listening on" address=(\S+)', within_s=2 * PATIENCE_S)[1]
        self.log.wait("Server is ready to receive web requests", within_s=2 * PATIENCE_S)

    def wait_scrapes(self, count: int) -> None:
        query = f'count_over_time(up{{job="stanchion"}}[1m]) >= {count}'
        eventually(lambda: self.query(query), f"{count} scrapes", within_s=3 * PATIENCE_S)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The value of an expression now; an AssertionError where Prometheus does not understand it."""
        return self._get("/api/v1/query", query=expression)["result"]

    def series(self, selector: str) -> list[dict[str, str]]:
        """The label sets that such a selector has found so far."""
        return self._get("/api/v1/series", **{"match[]": selector})

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("/api/v1/rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"{self._base}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        assert answer["status"] == "success", answer
        assert not answer.get("warnings"), answer
        return answer["data"]

    def stop(self) -> None:
        neighbour.end(self._process)
        self.log.close()
