"""The burst of seed 000: nginx in front, a small somaxconn, one blocking worker, and no client may be turned away.

The same burst at gunicorn, behind the same nginx under the same limit, must lose requests; or this test could not fail.
"""

import collections
import itertools
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import netns
from support.load import Arrival, Outcome, offer
from support.netns import Namespace
from support.nginx import NGINX, Nginx
from support.server import GUNICORN, STANCHION, Kind, Serve

BURST = 400
SPACING_S = 0.002
"""400 requests in 0.8 s."""
SERVICE_MS = 25
PATIENCE_S = 20
"""All of the burst is 10 s of work."""
STOP_S = 40
"""gunicorn waits 30 s for its workers before it kills them."""
OVERTAKING_MAX_S = 0.4
"""Two requests sent further apart than this must be served in their order; nearer ones may change places on their way
through client, nginx and kernel, which are not what is tested."""
CLOCK_S = 0.010
"""How exactly an app can tell when its request joined the line: what was pulled may wait for a core."""

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.own("this compares stanchion with gunicorn"),
    pytest.mark.skipif(not NGINX, reason="NOT TESTED BEHIND NGINX: nginx is not installed"),
    pytest.mark.skipif(bool(netns.unavailable()), reason=f"NOT TESTED BEHIND NGINX: {netns.unavailable()}"),
]


@dataclass
class Setting:
    """The kind of socket between nginx and the server, and the limit on it."""

    bind: str
    upstream: str
    somaxconn: int


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace()
    yield made
    made.remove()


@pytest.fixture(params=["unix socket, somaxconn 128", "tcp, somaxconn 16"])
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    if request.param.startswith("unix"):
        return Setting(f"unix:{tmp_path}/app.sock", f"unix:{tmp_path}/app.sock", 128)
    return Setting("127.0.0.1:8000", "127.0.0.1:8000", 16)


def burst_through_nginx(serve: Serve, kind: Kind, setting: Setting, namespace: Namespace, home: Path) -> list[Outcome]:
    # The kernel caps a backlog when listen(2) is called: nginx has its full one, only the server is limited.
    namespace.sysctl("net.core.somaxconn", 4096)
    nginx = Nginx(home / f"nginx-{kind.name}", setting.upstream, namespace)
    try:
        namespace.sysctl("net.core.somaxconn", setting.somaxconn)
        server = serve("waiting:sleepy", kind=kind, bind=setting.bind, prefix=namespace.prefix)
        schedule = [Arrival(number * SPACING_S, f"/?ms={SERVICE_MS}&number={number}") for number in range(BURST)]
        outcomes = namespace.run(lambda: offer(nginx.address, schedule, BURST, keep_alive=False, patience_s=PATIENCE_S))
        # At once: how a peer drains is not what is tested, and may take its whole graceful timeout.
        server.process.send_signal(signal.SIGINT)
        server.exit_code(within_s=STOP_S)
    finally:
        nginx.stop()
        print(f"--- errors of nginx before {kind.name}\n{nginx.errors()[-2000:]}")
    return outcomes


def assert_first_come_first_served(outcomes: list[Outcome]) -> None:
    answers = [(outcome.body.decode().split(), outcome.sent_s) for outcome in outcomes]
    served = sorted(answers, key=lambda answer: int(answer[0][0]))
    joined_s = [float(words[2]) for words, _ in served]
    assert all(later > earlier - CLOCK_S for earlier, later in itertools.pairwise(joined_s)), (
        "served in the order in which the server says they joined"
    )
    latest_sent_s = 0.0
    for words, sent_s in served:
        assert sent_s > latest_sent_s - OVERTAKING_MAX_S, f"{words} was overtaken by {latest_sent_s - sent_s:.3f} s"
        latest_sent_s = max(latest_sent_s, sent_s)


def test_a_burst_behind_nginx_is_served_whole_and_in_order_where_gunicorn_loses_requests(
    serve: Serve, setting: Setting, namespace: Namespace, tmp_path: Path
) -> None:
    outcomes = burst_through_nginx(serve, STANCHION, setting, namespace, tmp_path)
    statuses = collections.Counter(outcome.status for outcome in outcomes)
    assert statuses == {200: BURST}, [outcome for outcome in outcomes if outcome.status != 200][:3]
    assert_first_come_first_served(outcomes)

    outcomes = burst_through_nginx(serve, GUNICORN, setting, namespace, tmp_path)
    statuses = collections.Counter(outcome.status for outcome in outcomes)
    print(f"gunicorn's answers: {statuses}; 0 is none within {PATIENCE_S} s")
    assert statuses[200] < BURST, "gunicorn lost nothing: the limit is not in force, and this test proves nothing"
