"""The yardstick: one first-come-first-served line before a number of workers, computed for the arrivals of a load."""

import heapq

from stanchion_lab.load import Failed, Offered, copies
from stanchion_lab.load.figures import Request, of_requests, served_ms
from stanchion_lab.load.schedule import arrivals_s, paths
from stanchion_lab.result import LATE, SERVED
from stanchion_lab.scenario import Load, Server

KIND = "ideal"


def offer(load: Load, server: Server) -> Offered:
    """The outcomes of the same requests in an ideal line. `server.values` has how long each path takes, in ms."""
    if not load.rate_per_s:
        raise Failed("the ideal line wants arrivals: a load with rate_per_s")
    load = copies.in_one(load)
    unknown = load.paths.keys() - server.values.keys()
    if unknown:
        raise Failed(f"the ideal line wants to know how long {', '.join(sorted(unknown))} takes: values, in ms")
    service_s = {path: float(taken_ms) / 1e3 for path, taken_ms in server.values.items()}
    free_at_s = [0.0] * server.workers
    requests = []
    for due_s, path in zip(arrivals_s(load), paths(load.paths), strict=False):
        begins_s = max(due_s, free_at_s[0])
        if begins_s - due_s >= load.patience_s:
            requests.append(Request(due_s, path, LATE, load.patience_s))
            continue
        heapq.heapreplace(free_at_s, begins_s + service_s[path])
        latency_s = begins_s + service_s[path] - due_s
        requests.append(Request(due_s, path, SERVED if latency_s < load.patience_s else LATE, latency_s))
    return Offered(
        tool="computed",
        command=f"{server.workers} workers, one line, service times in ms: {server.values}",
        figures=of_requests(requests),
        latencies_ms=served_ms(requests),
        timeline=[(one.due_s, one.latency_s * 1e3, one.outcome) for one in requests],
    )
