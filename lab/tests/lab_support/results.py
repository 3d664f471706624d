"""Results as runs leave them, made up: several trials and repeats, missing and failed ones, a ramp, shares."""

import math
import random

from stanchion_lab.result import Host, Measured, Result
from stanchion_lab.scenario import Claim, Deed, Load, Plot, Published, Ramp, Scenario, Server, Trial

KINDS = ("outcomes", "bars", "histogram", "latencies", "shares", "timeline", "ramp")


def scenario() -> Scenario:
    small, large = {"net.core.somaxconn": 128}, {"net.core.somaxconn": 1024}
    return Scenario(
        title="A burst, a unix socket, and 128 places",
        question="Why does nginx answer 502 when 200 requests come within one second to an app that takes 2 seconds?",
        origin="After a story of a `Django` site behind nginx and gunicorn, told on a company's blog.",
        reading=(
            "The kernel cuts the queue that gunicorn asks for to `net.core.somaxconn`. When it is full, `connect(2)` "
            "on a unix socket fails at once with `EAGAIN`.\n\nTwo things follow:\n\n- A longer queue hides it: "
            "the last client then waits for minutes.\n- stanchion takes every connection at once & keeps the line "
            "itself, so <nothing> is refused.\n"
        ),
        repeats=3,
        servers={
            "app": Server(kind="gunicorn", listen="unix:app.sock", app="blocking:app", backlog=2048),
            "line": Server(kind="stanchion", listen="unix:app.sock", app="blocking:app", workers=12),
            "web": Server(kind="nginx", listen="127.0.0.1:8000", config="proxy.conf", upstream="app", workers=2),
            "front": Server(kind="nginx", listen="127.0.0.1:8000", config="proxy.conf", upstream="line", workers=2),
        },
        loads={
            "burst": Load(tools=["vegeta", "own"], rate_per_s=200, for_s=1, patience_s=60),
            "ramp": Load(ramp=Ramp(from_per_s=50, to_per_s=400, step_per_s=50), for_s=1),
        },
        trials=[
            Trial(name="small", title="gunicorn, somaxconn 128", servers=["app", "web"], load="burst", sysctl=small),
            Trial(name="large", title="gunicorn, somaxconn 1024", servers=["app", "web"], load="burst", sysctl=large),
            Trial(name="ours", title="stanchion, somaxconn 128", servers=["line", "front"], load="burst", sysctl=small),
            Trial(
                name="climb",
                title="stanchion, with more and more requests, a reload and a stall on the way",
                servers=["line", "front"],
                load="ramp",
                deeds=[
                    Deed(at_s=1.5, touch="stall"),
                    Deed(at_s=2.5, remove="stall"),
                    Deed(at_s=5, signal="HUP", server="line"),
                ],
            ),
            Trial(name="climb2", title="gunicorn, with more and more requests", servers=["app", "web"], load="ramp"),
            Trial(name="absent", title="gunicorn, asked by siege", servers=["app", "web"], load="burst"),
        ],
        plots=[
            Plot(kind="outcomes", title="What became of the requests"),
            Plot(kind="bars", title="The slowest request", of="latency_ms.max"),
            Plot(kind="histogram", title="How long they took", trials=["small", "large", "ours"]),
            Plot(kind="latencies", title="How slow the slowest are"),
            Plot(kind="shares", title="Who did the work", trials=["small", "large", "ours"]),
            Plot(kind="timeline", title="Request by request", trials=["small", "climb"]),
            Plot(kind="ramp", title="Until it breaks", trials=["climb", "climb2"]),
        ],
        table=["requests", "served", "gateway", "latency_ms.p50", "latency_ms.p99", "log.web.errno.11"],
        claims=[
            Claim(text="At 128 some requests fail", of="small:gateway", be=">", than=0),
            Claim(text="At 1024 fewer fail than at 128", of="large:gateway", be="<", than="small:gateway"),
            Claim(
                text="stanchion's slowest is at most half as slow",
                of="ours:latency_ms.max",
                be="<=",
                than="large:latency_ms.max",
                times=0.5,
            ),
            Claim(
                text="stanchion turns somebody away", of="ours:told", be=">", than=0, unless="the line is long enough"
            ),
            Claim(text="siege sees the same", of="absent:gateway", be=">", than=0),
        ],
        published=[
            Published(trial="small", figure="gateway", value=67, note="of 200, on a laptop"),
            Published(trial="large", figure="latency_ms.p99", value=398_000),
        ],
    )


def result() -> Result:
    chance = random.Random(6)
    measured = []
    for repeat in range(3):
        measured += [
            burst("small", repeat, chance, queue=128, every_ms=2000),
            burst("large", repeat, chance, queue=1024, every_ms=2000),
            burst("ours", repeat, chance, queue=1024, every_ms=170, workers=12),
            climb("climb", repeat, chance, 330),
            climb("climb2", repeat, chance, 180),
        ]
    measured.append(
        Measured(trial="large", repeat=3, failure="web did not listen within 10 s", words={"web": "[emerg]"})
    )
    return Result(
        name="unix-backlog",
        size="full",
        scenario=scenario(),
        began="2026-11-21T16:00:00Z",
        host=Host(
            kernel="Linux 6.1.0-18-amd64",
            cores=2,
            memory_mb=7_950,
            python="3.11.2",
            stanchion="0.1.0",
            versions={"nginx": "1.22.1", "gunicorn": "27.0.1", "vegeta": "12.12.0"},
        ),
        measured=measured,
        missing={"absent": "siege is not installed; Debian has it in the package siege"},
    )


def burst(trial: str, repeat: int, chance: random.Random, queue: int, every_ms: float, workers: int = 1) -> Measured:
    timeline: list[tuple[float, float, str]] = []
    free = 0.0
    for number in range(200):
        due = number / 200
        if number > queue + chance.randint(-3, 4):
            timeline.append((due, chance.uniform(0.3, 0.9), "gateway"))
        else:
            free = max(free, due * 1000) + every_ms * chance.uniform(0.98, 1.02)
            done = free - due * 1000
            timeline.append((due, min(done, 60_000), "served" if done < 60_000 else "late"))
    served = sorted(ms for _, ms, outcome in timeline if outcome == "served")
    counts = {name: float(sum(1 for *_, one in timeline if one == name)) for name in ("served", "gateway", "late")}
    return Measured(
        trial=trial,
        repeat=repeat,
        began=f"2026-11-21T16:0{repeat}:00Z",
        took_s=61.0,
        tool="vegeta",
        figures={
            "requests": 200.0,
            **counts,
            "failed": counts["gateway"] + counts["late"],
            "per_s": len(served) / 60,
            "latency_ms.p50": served[len(served) // 2],
            "latency_ms.p99": served[-1 - len(served) // 100],
            "latency_ms.max": served[-1],
            "log.web.errno.11": counts["gateway"],
            "kernel.ListenOverflows": 0.0,
            **(
                {"backlog.app": float(min(queue, 2048)), "waiting_max.app": min(queue + 1.0, 199.0)}
                if workers == 1
                else {}
            ),
            "backlog.web": 511.0,
            "waiting_max.web": 3.0,
        },
        latencies_ms=[ms for _, ms, outcome in timeline if outcome == "served"],
        timeline=timeline,
        shares={str(place): chance.uniform(0.8, 1.2) ** 3 for place in range(workers)},
        commands={
            "client": "vegeta attack -rate=200 -duration=1s -timeout=60s",
            "app": "gunicorn --workers 1 --backlog 2048 --bind unix:app.sock blocking:app",
            "web": "nginx -c nginx.conf -p .",
        },
        sysctl={"net.core.somaxconn": 128},
        words={
            "vegeta": "Requests      [total, rate]  200, 201.01\nStatus Codes  [code:count]  200:132  502:68\n",
            "web": '[error] 11: Resource temporarily unavailable, "GET /<script>alert(1)</script>" \x1b[31mred\x1b[0m\n'
            * 3,
        },
    )


def climb(trial: str, repeat: int, chance: random.Random, capacity: float) -> Measured:
    steps, timeline, latencies = [], [], []
    for place, rate in enumerate(range(50, 401, 50)):
        served = min(rate, capacity * chance.uniform(0.95, 1.02))
        steps.append({"rate_per_s": float(rate), "requests": float(rate), "per_s": served, "failed": rate - served})
        for number in range(rate):
            at = place + number / rate
            stalled = max(0.0, 2.5 - at) * 1000 if trial == "climb" and 1.5 < at < 2.5 else 0.0
            ms = math.exp(chance.gauss(2.5, 0.4)) * (1 + max(0, rate - capacity) / 20) + stalled
            outcome = "served" if chance.random() < served / rate else chance.choice(["told", "broken", "refused"])
            timeline.append((at, ms if outcome in ("served", "told") else 0.0, outcome))
            if outcome == "served":
                latencies.append(ms)
    requests = float(len(timeline))
    counts = {
        name: float(sum(1 for *_, one in timeline if one == name)) for name in ("served", "told", "broken", "refused")
    }
    return Measured(
        trial=trial,
        repeat=repeat,
        tool="own",
        figures={
            "requests": requests,
            **counts,
            "latency_ms.p50": sorted(latencies)[len(latencies) // 2],
            "latency_ms.p99": sorted(latencies)[-len(latencies) // 100],
            "latency_ms.max": max(latencies),
        },
        latencies_ms=latencies,
        timeline=timeline,
        steps=steps,
    )
