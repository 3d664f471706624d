"""The single waiting line as it should be: one queue, first come, first served, and no server idle while one waits."""

import heapq
import random
from collections.abc import Sequence


def sojourn_s(arrivals_s: Sequence[float], services_s: Sequence[float], servers: int) -> list[float]:
    """The time from arrival to end of service of each customer, with nothing lost on the way."""
    free_at_s = [0.0] * servers
    times = []
    for arrival_s, service_s in zip(arrivals_s, services_s, strict=True):
        end_s = max(arrival_s, heapq.heappop(free_at_s)) + service_s
        heapq.heappush(free_at_s, end_s)
        times.append(end_s - arrival_s)
    return times


def poisson_arrivals_s(rate_per_s: float, duration_s: float, dice: random.Random) -> list[float]:
    """Arrivals of many clients that know nothing of each other."""
    times, now_s = [], 0.0
    while (now_s := now_s + dice.expovariate(rate_per_s)) < duration_s:
        times.append(now_s)
    return times
