"""When requests are due and what each asks for. The same load has the same requests, in every trial and repeat."""

import random
from collections.abc import Iterator, Mapping

from stanchion_lab.scenario import Load

# Each kind of chance has a seed of its own, so that one more number for the one does not change the others.
SEED_OF_ARRIVALS = 1
SEED_OF_PATHS = 2
SEED_OF_CONNECTIONS = 3
SEED_OF_HOSTS = 4


def arrivals_s(load: Load) -> Iterator[float]:
    """The times at which an open loop's requests arrive, from its start."""
    return _poisson(load) if load.arrivals == "poisson" else _even(load)


def _even(load: Load) -> Iterator[float]:
    for number in range(round(load.rate_per_s * load.for_s)):
        yield number / load.rate_per_s


def _poisson(load: Load) -> Iterator[float]:
    dice = random.Random(SEED_OF_ARRIVALS)
    due_s = dice.expovariate(load.rate_per_s)
    while due_s < load.for_s:
        yield due_s
        due_s += dice.expovariate(load.rate_per_s)


def paths(shares: Mapping[str, float]) -> Iterator[str]:
    """For each request its path, without end."""
    if len(shares) == 1:
        (only,) = shares
        while True:
            yield only
    dice = random.Random(SEED_OF_PATHS)
    names, weights = list(shares), list(shares.values())
    while True:
        yield from dice.choices(names, weights, k=256)
