"""The last five minutes of several hosts together, a sample a second, for the charts of the page. Pure."""

from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stanchion.top.hosts import AllHosts
from stanchion.top.model import Spread
from stanchion.top.status import Reader

SAMPLES_MAX = 300
"""A host keeps as many."""

SECOND_US = 1_000_000

FRESH_US = 2 * SECOND_US
"""A host samples itself about once a second: a sample says how it was until the next, or for so long."""

_COUNTS = ("arrived", "answered", "refused", "broken", "gone")
_SUMS = ("waiting", "busy", "seats")
_LARGEST = ("oldest_wait_us", "longest_us")

Sample = Mapping[str, object]
"""`/history` has such samples; here `rates` are in place of the counts, whose sums would jump as hosts come and go."""


@dataclass(frozen=True)
class OwnSample:
    """A sample that a host has taken of itself."""

    age_us: int
    figures: Mapping[str, int]


def sample(all_hosts: AllHosts, at_us: int) -> Sample:
    """The sample that follows from the latest looks."""
    models = [model for _, model in all_hosts.answering]
    rates, wait, service = all_hosts.rates, all_hosts.wait.lately, all_hosts.service.lately
    return {
        "at_us": at_us,
        "waiting": all_hosts.total.waiting,
        "oldest_wait_us": all_hosts.total.oldest_wait_us,
        "busy": all_hosts.total.busy,
        "seats": all_hosts.total.seats,
        "longest_us": max((one.status.running.max_us for one in models if one.status.running.count), default=0),
        "wait_p50_us": _known(wait, wait.p50_us if wait else 0),
        "wait_p99_us": _known(wait, wait.p99_us if wait else 0),
        "service_p50_us": _known(service, service.p50_us if service else 0),
        "service_p99_us": _known(service, service.p99_us if service else 0),
        "rates": rates
        and {
            "arrived": rates.arrived,
            "answered": rates.answered + sum(rates.by_server.values()),
            "refused": sum(rates.refused.values()),
            "broken": sum(rates.broken.values()),
            "gone": rates.gone,
        },
    }


def own_samples(data: object) -> list[OwnSample]:
    """The samples in the JSON value of a host's `/history`, the oldest first. Unexpected, if there are none."""
    top = Reader(data, "the history")
    now_us = top.count("now_us")

    def one(of: Reader) -> OwnSample:
        figures = {name: of.count(name) for name in (*_COUNTS, *_SUMS, *_LARGEST)}
        return OwnSample(now_us - of.count("at_us"), figures)

    return sorted(top.each("samples", one), key=lambda sample: -sample.age_us)[-SAMPLES_MAX:]


def before(now_us: int, hosts: Sequence[Sequence[OwnSample]]) -> Iterable[Sample]:
    """The time before now, from the hosts' own samples; without quantiles, which cannot be added up."""
    for seconds in range(SAMPLES_MAX - 1, 0, -1):
        age_us = seconds * SECOND_US
        pairs = [pair for samples in hosts if (pair := _at(samples, age_us)) is not None]
        if not pairs:
            continue
        latest = [now.figures for _, now in pairs]
        rates = {
            name: sum(_rate(earlier, now, name) for earlier, now in pairs if earlier is not None) for name in _COUNTS
        }
        yield {
            "at_us": now_us - age_us,
            **{name: sum(figures[name] for figures in latest) for name in _SUMS},
            **{name: max(figures[name] for figures in latest) for name in _LARGEST},
            "rates": rates,
        }


def _at(samples: Sequence[OwnSample], age_us: int) -> tuple[OwnSample | None, OwnSample] | None:
    """The sample that was the latest at that age, and the one before it."""
    number = bisect(samples, -age_us, key=lambda sample: -sample.age_us) - 1
    if number < 0 or samples[number].age_us >= age_us + FRESH_US:
        return None
    return samples[number - 1] if number else None, samples[number]


def _rate(earlier: OwnSample, now: OwnSample, name: str) -> float:
    elapsed_us = earlier.age_us - now.age_us
    grown = now.figures[name] - earlier.figures[name]
    return grown * SECOND_US / elapsed_us if elapsed_us > 0 and grown > 0 else 0.0


def _known(spread: Spread | None, figure: float) -> float | None:
    return figure if spread is not None and spread.count else None
