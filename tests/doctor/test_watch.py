"""A watch sees peaks between its two looks, and counters that have grown from one to the other."""

from stanchion.doctor.facts import Facts, Listener, Network
from stanchion.doctor.watch import watch
from support.doctor import facts, network, tcp


class Time:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now = 0.0

    def pause(self, seconds: float) -> None:
        self.now += seconds


def watched(looks: list[Facts], samples: list[Listener], seconds: float = 0.3) -> Facts:
    time = Time()
    between = iter(samples)

    def sample(_: Network) -> tuple[Listener, ...]:
        return (next(between),)

    return watch(seconds, iter(looks).__next__, sample, time.pause, lambda: time.now)


def test_peaks_and_growth() -> None:
    first = facts(network(tcp(drops=3), counters={"ListenDrops": 10}), backlog_dropped=1)
    last = facts(network(tcp(waiting=1, drops=5), counters={"ListenDrops": 17}), backlog_dropped=4)
    seen = watched([first, last], [tcp(waiting=2), tcp(waiting=9), tcp(waiting=0)])
    (listener,) = seen.networks[0].listeners
    assert (listener.waiting, listener.waiting_peak, listener.drops, listener.drops_grown) == (1, 9, 5, 2)
    assert seen.networks[0].counters_grown == {"ListenDrops": 7}
    assert (seen.backlog_dropped_grown, seen.watched_s) == (3, 0.3)


def test_a_socket_that_came_meanwhile_has_all_its_drops_from_now() -> None:
    seen = watched([facts(network()), facts(network(tcp(drops=5, inode=8)))], [tcp(waiting=1, inode=9)] * 3)
    (listener,) = seen.networks[0].listeners
    assert (listener.drops_grown, listener.waiting_peak) == (5, 0)


def test_ctrl_c_ends_it_early() -> None:
    time = Time()

    def pause(_: float) -> None:
        time.now += 1
        raise KeyboardInterrupt

    looks = iter([facts(network(tcp())), facts(network(tcp(waiting=3)))])
    seen = watch(60.0, looks.__next__, lambda _: (), pause, lambda: time.now)
    assert seen.watched_s == 1.0
    assert seen.networks[0].listeners[0].waiting_peak == 3
