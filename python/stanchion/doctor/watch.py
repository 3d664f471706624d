"""Looks twice, and at the queues many times between: what grows is what happens now."""

import time
from collections.abc import Callable
from dataclasses import replace

from stanchion.doctor import gather
from stanchion.doctor.facts import Facts, Listener, Network

SAMPLE_S = 0.1
"""Between two looks at the queues."""

Peaks = dict[tuple[str, int], int]


def watch(
    seconds: float,
    look: Callable[[], Facts] = gather.look,
    sample: Callable[[Network], tuple[Listener, ...]] | None = None,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Facts:
    """The last look, with what has grown since the first one. Ctrl-C ends it early."""
    sample = sample or _sample
    began = clock()
    first = look()
    peaks: Peaks = {}
    try:
        while (left := began + seconds - clock()) > 0:
            pause(min(SAMPLE_S, left))
            for network in first.networks:
                _note(peaks, network.link, sample(network))
    except KeyboardInterrupt:
        pass
    last = look()
    return compared(first, last, peaks, round(clock() - began, 1))


def _sample(network: Network) -> tuple[Listener, ...]:
    try:
        return gather.network(network.pid, network.link).listeners
    except FileNotFoundError:
        return ()  # All processes there are gone.


def _note(peaks: Peaks, link: str, listeners: tuple[Listener, ...]) -> None:
    for listener in listeners:
        key = (link, listener.inode)
        peaks[key] = max(peaks.get(key, 0), listener.waiting)


def compared(first: Facts, last: Facts, peaks: Peaks, seconds: float) -> Facts:
    before = gather.sockets(first.networks)
    networks_before = {network.link: network for network in first.networks}
    networks = []
    for network in last.networks:
        listeners = tuple(
            _grown(one, before.get((network.link, one.inode)), peaks.get((network.link, one.inode), 0))
            for one in network.listeners
        )
        earlier = networks_before.get(network.link)
        counters = earlier.counters if earlier else {}
        grown = {name: value - counters.get(name, 0) for name, value in network.counters.items()}
        networks.append(replace(network, listeners=listeners, counters_grown=grown))
    return replace(
        last,
        networks=tuple(networks),
        backlog_dropped_grown=(last.backlog_dropped or 0) - (first.backlog_dropped or 0),
        watched_s=seconds,
    )


def _grown(now: Listener, before: Listener | None, peak: int) -> Listener:
    drops = None if now.drops is None else now.drops - ((before.drops or 0) if before else 0)
    return replace(now, waiting_peak=max(now.waiting, peak), drops_grown=drops)
