"""One cluster for all tests, which `make fleet-k8s` runs on a host of its own (scripts/own-host)."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet_k8s.cluster import Cluster, cluster

OWN_HOST = "STANCHION_OWN_HOST"
"""A variable that `make fleet-k8s` sets: these tests change the network and the control groups of their host."""

LOGS = Path(__file__).parents[2] / "target/fleet-k8s"
"""Where the logs of the last run stay: of Kubernetes' programs, and of the pods at the end of each test."""

collect_ignore_glob = [] if os.environ.get(OWN_HOST) else ["test_*.py"]


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Cluster]:
    """In memory: images and databases are a few hundred megabytes, and go with the host."""
    home = Path("/run/kubernetes")
    try:
        with cluster(home) as made:
            yield made
    finally:
        shutil.rmtree(LOGS, ignore_errors=True)
        shutil.copytree(home / "logs", LOGS)
