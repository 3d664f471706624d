"""Honest clients beside each kind of attacker, and what that costs them over the time before and after.

The server has a core. The attackers have the other one, and the honest clients take it from them whenever they have
something to do. So a flood comes as fast as a core can send it, and an honest client waits for the server and for
nothing else.
"""

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.attackers import Did
from bench.attacks import ATTACKS, NONE, Attack
from bench.honest_load import Asked, HonestClients
from bench.measure import CLIENT_CORE, Figures, Plan, serving, watching
from bench.mixed_load import percentile
from bench.processes import ServerError, Tree
from bench.servers import ASYNCHRONOUS, PYTHON, Server
from bench.sockets import on_the_clients_core
from bench.turns import spent_since

WORKERS = 2
# Of the plan's loads. Two windows alone, before and after, are as long as the one beside the attackers between them.
BESIDE_LOADS = 2
ALONE_LOADS = 1
WARM_UP_S = 1.0
# From the attackers' beginning until a window, and from their end.
SETTLE_S = 0.3
END_S = 10.0
ACCEPTOR = "stanchion-acpt"


@dataclass(frozen=True)
class Window:
    """A time on the monotonic clock, and what the server used in it."""

    began_s: float
    ended_s: float
    server_ns: int
    acceptor_ns: int
    pss_bytes: int

    @property
    def duration_s(self) -> float:
        return self.ended_s - self.began_s

    def latencies_s(self, asked: Sequence[Asked]) -> list[float]:
        return [one.latency_s for one in self.requests(asked)]

    def requests(self, asked: Sequence[Asked]) -> list[Asked]:
        """Requests that were due in this time, whenever the server answered them."""
        return [one for one in asked if self.began_s <= one.due_s < self.ended_s]


@dataclass(frozen=True)
class Stage:
    """The windows of one attack, and what the attackers did."""

    name: str
    beside: Window
    # Before and after, unless the clients were still waiting there for what the attackers had kept from them.
    alone: Sequence[Window]
    did: Did


def adversaries(server: Server, plan: Plan, round_number: int) -> Iterator[tuple[str, Figures]]:
    """Alone, beside one kind of attackers, alone, beside the next; in odd rounds from the last kind to the first."""
    is_asynchronous = server.name in ASYNCHRONOUS
    chosen = [ATTACKS[name] for name in plan.attacks or ATTACKS]
    attacks = [attack for attack in chosen if is_asynchronous or not attack.needs_websockets]
    app = "asgi:big" if is_asynchronous else "big:app"
    with serving(server, app, workers=WORKERS, tls=True, http2=True) as (tree, port), on_the_clients_core():
        others_share = watching(tree)
        with HonestClients(port, round_number, CLIENT_CORE) as honest:
            time.sleep(WARM_UP_S)
            stages = list(besieged(tree, port, attacks if round_number % 2 == 0 else attacks[::-1], honest, plan))
        share = others_share()
    for stage in stages:
        yield stage.name, {**figures(stage, honest.asked), "others_share": share}


def besieged(tree: Tree, port: int, attacks: Sequence[Attack], honest: HonestClients, plan: Plan) -> Iterator[Stage]:
    before = window(tree, plan.load_s * ALONE_LOADS)
    for attack in attacks:
        with Attackers(port, attack) as attackers:
            time.sleep(SETTLE_S + attack.opening_s)
            beside = window(tree, plan.load_s * BESIDE_LOADS)
        time.sleep(SETTLE_S)
        # Requests that the attackers have kept waiting would make the next window look as bad as the one beside them.
        is_calm = honest.settle()
        after = window(tree, plan.load_s * ALONE_LOADS)
        yield Stage(attack.name, beside, [before, after] if is_calm else [before], attackers.did)
        before = after if is_calm else before


def window(tree: Tree, duration_s: float) -> Window:
    before, began_s = tree.cpu(), time.monotonic()
    time.sleep(duration_s)
    ended_s, after = time.monotonic(), tree.cpu()
    spent_ns = {name: cpu.all_ns for name, cpu in spent_since(before, after).items()}
    # The kernel keeps the server from its work while it adds up the memory, so it does so after the end.
    return Window(began_s, ended_s, sum(spent_ns.values()), spent_ns.get(ACCEPTOR, 0), tree.pss_bytes())


def figures(stage: Stage, asked: Sequence[Asked]) -> Figures:
    alone, beside = stage.alone, stage.beside
    alone_s = [latency_s for one in alone for latency_s in one.latencies_s(asked)]
    beside_s = beside.latencies_s(asked)
    if not alone_s or not beside_s:
        raise ServerError(f"no request was due alone, or none beside {stage.name}")
    p50, alone_p50, p99, alone_p99 = (
        1e3 * percentile(latencies_s, share) for share in (0.5, 0.99) for latencies_s in (beside_s, alone_s)
    )
    alone_duration_s = sum(one.duration_s for one in alone)
    return {
        "p99_ratio": p99 / alone_p99,
        "p50_ratio": p50 / alone_p50,
        "p99_ms": p99,
        "alone_p99_ms": alone_p99,
        "p50_ms": p50,
        "alone_p50_ms": alone_p50,
        "acceptor_s": beside.acceptor_ns / 1e9 / beside.duration_s,
        "alone_acceptor_s": sum(one.acceptor_ns for one in alone) / 1e9 / alone_duration_s,
        "server_s": beside.server_ns / 1e9 / beside.duration_s,
        "alone_server_s": sum(one.server_ns for one in alone) / 1e9 / alone_duration_s,
        "pss_mb": beside.pss_bytes / 1e6,
        "alone_pss_mb": alone[0].pss_bytes / 1e6,
        "attack_mb": stage.did["bytes"] / 1e6,
        "attack_connections": stage.did["connections"],
        "requests": len(beside_s),
        "failures": sum(one.failed for one in beside.requests(asked)),
        "alone_failures": sum(one.failed for each in alone for one in each.requests(asked)),
    }


class Attackers:
    """The program of one kind of attackers, for as long as the `with` lasts; afterwards, what it `did`."""

    def __init__(self, port: int, attack: Attack) -> None:
        self._attack = attack
        self._command = ["taskset", "-c", str(CLIENT_CORE), PYTHON, "-m", "bench.attackers", str(port), attack.name]
        self.did: Did = {"connections": 0, "bytes": 0}

    def __enter__(self) -> "Attackers":
        self._process: subprocess.Popen[bytes] | None = None
        if self._attack is not NONE:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._process.stdout
            if not self._process.stdout.readline():
                self._process.wait(END_S)
                raise ServerError(f"no attackers: {self._attack.name}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        with self._process:
            try:
                said = self._process.communicate(timeout=END_S)[0]
            except subprocess.TimeoutExpired:
                self._process.kill()
                raise
        self.did = json.loads(said)
