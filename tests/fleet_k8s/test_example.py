"""The objects of examples/kubernetes/base run, with an image of the tests in the place of yours."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from fleet_k8s import image
from fleet_k8s.cluster import Cluster
from support.example import EXAMPLES
from support.manifests import Manifests

RIGHTS = """\
import json, os
status = dict(line.split(":\\t", 1) for line in open("/proc/1/status").read().splitlines() if ":\\t" in line)
try:
    open("/app/new", "w")
    written = True
except OSError as problem:
    written = os.strerror(problem.errno)
token = os.path.exists("/var/run/secrets/kubernetes.io")
print(json.dumps({"ids": os.getresuid() + os.getresgid(), "written": written, "token": token,
    "status": {name: status[name].split() for name in ("Uid", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")}}))
"""


@pytest.fixture
def shop(kubernetes: Cluster) -> Iterator[Manifests]:
    folder = EXAMPLES / "kubernetes/base"
    names = ("deployment.yaml", "services.yaml", "policies.yaml")
    base = Manifests.read("\n---\n".join((folder / name).read_text() for name in names))
    [container] = base.deployment["spec"]["template"]["spec"]["containers"]
    # The image of the tests has no folder of its own for programs, and the machine two cores for all that it runs.
    container |= {"image": image.SHOP, "imagePullPolicy": "Never", "workingDir": "/app"}
    container["command"] = [image.PYTHON, "-m", "stanchion", "serve"]
    container["resources"]["requests"]["cpu"] = "10m"
    container["env"] = [{"name": "SHOP_COUNTS", "value": "/tmp"}]
    kubernetes.apply(*base.objects)
    try:
        kubernetes.kubectl("rollout", "status", "deployment/shop", "--timeout=120s", within_s=130)
        yield base
    finally:
        kinds = "deployment,service,serviceaccount,poddisruptionbudget,networkpolicy"
        kubernetes.kubectl("delete", kinds, "--selector=app.kubernetes.io/name=shop", "--wait=false")
        words = ("--selector=app.kubernetes.io/name=shop", "--force", "--grace-period=0")
        kubernetes.kubectl("delete", "pods", *words)


def test_its_pods_serve_with_no_right_that_they_do_not_need(kubernetes: Cluster, shop: Manifests) -> None:
    found = kubernetes.api.get("/api/v1/namespaces/default/pods?labelSelector=app.kubernetes.io/name=shop")["items"]
    assert len(found) == shop.deployment["spec"]["replicas"]
    for pod in found:
        [status] = pod["status"]["containerStatuses"]
        assert (status["ready"], status["restartCount"]) == (True, 0)
        done = kubernetes.kubectl("exec", pod["metadata"]["name"], "--", image.PYTHON, "-c", RIGHTS)
        rights = json.loads(done)
        assert rights["ids"] == [10001] * 6
        assert (rights["written"], rights["token"]) == ("Read-only file system", False)
        of_master = rights["status"]
        assert of_master["Uid"] == ["10001"] * 4
        assert (of_master["CapEff"], of_master["CapBnd"]) == (["0" * 16], ["0" * 16])
        # 2: a filter of system calls, the container runtime's.
        assert (of_master["NoNewPrivs"], of_master["Seccomp"]) == (["1"], ["2"])
    service = kubernetes.api.get("/api/v1/namespaces/default/services/shop")["spec"]
    with closing(http.client.HTTPConnection(service["clusterIP"], service["ports"][0]["port"], timeout=10)) as link:
        link.request("GET", "/sleep/1")
        assert link.getresponse().status == 200
    # As KEDA finds the pods: by the slices of the headless Service, which have the port of its URL.
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    addresses = [
        (address, port["port"])
        for one in kubernetes.api.get(f"{slices}?labelSelector=kubernetes.io/service-name=shop-admin")["items"]
        for endpoint in one["endpoints"]
        for address in endpoint["addresses"]
        for port in one["ports"]
    ]
    assert sorted(addresses) == sorted((pod["status"]["podIP"], 8299) for pod in found)
    for address, port in addresses:
        with closing(http.client.HTTPConnection(address, port, timeout=10)) as link:
            link.request("GET", "/line")
            answer = link.getresponse()
            line = json.loads(answer.read())
            assert (answer.status, line["seats"]) == (200, shop.seats)
            assert isinstance(line["seats_wanted"], int | float)
