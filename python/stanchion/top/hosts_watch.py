"""Looks at several hosts at an interval. A thread asks each of them, so that a slow one delays none of the others."""

import ipaddress
import socket
import threading
import time
from collections.abc import Sequence

from stanchion.effective import UsageError
from stanchion.top import source
from stanchion.top.hosts import Seen, cut
from stanchion.top.model import Model, model
from stanchion.top.source import Failed, Place
from stanchion.top.status import Status, Unexpected, parse

HOSTS_MAX = 256
"""Each host has a thread, and an answer of the size below at most."""

LOOK_S = 3.0
"""One look at a host may take so long, from connecting to the last byte."""

ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""A status of 20,000 seats has as many."""

LOOKUP_INTERVAL_S = 5.0
"""Pods come and go within seconds; a name server may have older answers."""

LOOKUP_S = 10.0
"""How long the first screen waits for a name server at most; the threads wait as long as it takes."""


def places(text: str) -> list[Place]:
    """The places that `--hosts` names. UsageError if there are none, or too many."""
    given = list(dict.fromkeys(source.place(one.strip()) for one in text.split(",") if one.strip()))
    if not 0 < len(given) <= HOSTS_MAX:
        raise UsageError(f"top: --hosts takes 1 to {HOSTS_MAX} addresses with commas between, not {len(given)}")
    return given


class HostsWatch:
    """The latest look at each host. Threads begin with it, and end by themselves after `end`."""

    def __init__(self, given: Sequence[Place], interval_s: float) -> None:
        self._interval_s = interval_s
        self._changed = threading.Condition()
        self._hosts: dict[Place, _Host] = {}
        self._left_out = 0
        self._began_s = time.monotonic()
        self._given = {place: number for number, place in enumerate(given) if not _is_name(place)}
        self._names = [_Name(place, number) for number, place in enumerate(given) if _is_name(place)]
        with self._changed:
            self._settle()
        for name in self._names:
            threading.Thread(target=self._look_up, args=(name,), daemon=True).start()

    def end(self) -> None:
        with self._changed:
            for ended in [one.ended for one in self._names] + [one.ended for one in self._hosts.values()]:
                ended.set()

    def wait(self, looks: int) -> None:
        """Wait until each host has answered or failed so many times; bounded, whatever the hosts do."""

        def is_done() -> bool:
            hosts = self._hosts.values()
            return all(name.looks for name in self._names) and all(host.looks >= looks for host in hosts)

        within_s = (LOOKUP_S if self._names else 0.0) + looks * LOOK_S + (looks - 1) * self._interval_s
        with self._changed:
            self._changed.wait_for(is_done, within_s)

    def seen(self) -> list[Seen]:
        """Hosts in the order in which they were given, those of a name by address; then names that have trouble."""
        now_s = time.monotonic()
        with self._changed:
            self._settle()
            hosts = sorted(self._hosts.values(), key=lambda host: (host.number, _sortable(host.where)))
            seen = [host.seen(now_s) for host in hosts]
            seen += [name.seen(now_s) for name in self._names if name.trouble is not None]
            if self._left_out:
                reason = f"not asked: {HOSTS_MAX} hosts are as many as this shows"
                seen.append(Seen(f"{self._left_out} more", None, reason, now_s - self._began_s))
            return seen

    def answering(self) -> list[Place]:
        with self._changed:
            return [place for place, host in self._hosts.items() if host.model is not None]

    def _settle(self) -> None:
        """Begin with hosts that are new. A host that its name has no more stays as long as it answers: it drains."""
        listed = dict(self._given)
        for name in self._names:
            for place in name.has:
                listed.setdefault(place, name.number)
        for place, host in list(self._hosts.items()):
            if place not in listed and host.model is None:
                host.ended.set()
                del self._hosts[place]
        for place in [place for place in listed if place not in self._hosts][: HOSTS_MAX - len(self._hosts)]:
            host = self._hosts[place] = _Host(place, listed[place])
            threading.Thread(target=self._ask, args=(host,), daemon=True).start()
        self._left_out = len(listed.keys() - self._hosts.keys())

    def _look_up(self, name: "_Name") -> None:
        while not name.ended.is_set():
            found: list[Place] | str
            try:
                found = addresses(name.place)
            except Failed as failure:
                found = str(failure)
            with self._changed:
                name.take(found)
                self._settle()
                self._changed.notify_all()
            name.ended.wait(LOOKUP_INTERVAL_S)

    def _ask(self, host: "_Host") -> None:
        try:
            self._ask_until_end(host)
        finally:
            # Without its thread a host must not go on to show what it last said.
            with self._changed:
                host.take("our fault: the thread that asked this host has ended")

    def _ask_until_end(self, host: "_Host") -> None:
        while not host.ended.is_set():
            found: Status | str
            try:
                found = look(host.where)
            except Failed as failure:
                found = str(failure)
            with self._changed:
                host.take(found)
                self._changed.notify_all()
            host.ended.wait(self._interval_s)


class _Name:
    """A name, and the addresses that it has."""

    def __init__(self, place: Place, number: int) -> None:
        self.place = place
        self.number = number
        self.has: list[Place] = []
        self.trouble: str | None = None
        self.looks = 0
        self.ended = threading.Event()
        self._found_s = time.monotonic()

    def take(self, found: list[Place] | str) -> None:
        self.looks += 1
        if isinstance(found, str):
            # The name server's trouble is none of the hosts: those of before stay.
            self.trouble = cut(found)
            return
        self.has = found
        self.trouble = None if found else "the name has no address"
        if found:
            self._found_s = time.monotonic()

    def seen(self, now_s: float) -> Seen:
        return Seen(self.place.text, None, self.trouble, now_s - self._found_s)


class _Host:
    """A host, and the latest look at it."""

    def __init__(self, where: Place, number: int) -> None:
        self.where = where
        self.number = number
        """The position of the place, or of its name, among those that were given."""
        self.looks = 0
        self.model: Model | None = None
        self.ended = threading.Event()
        self._trouble: str | None = None
        self._before: Status | None = None
        self._answered_s = time.monotonic()

    def take(self, found: Status | str) -> None:
        if isinstance(found, str):
            self.looks += 1
            self.model, self._trouble = None, cut(found)
            return
        self._answered_s = time.monotonic()
        if self.model is not None and found == self.model.status:
            # A busy host gives the same answer for a while, which has no rates beside itself.
            return
        self.looks += 1
        self.model, self._trouble = model(self._before, found), None
        self._before = found

    def seen(self, now_s: float) -> Seen:
        if self.model is not None:
            return Seen(self.where.text, self.model, None, 0.0)
        reason = self._trouble or "asked for the first time"
        return Seen(self.where.text, None, reason, now_s - self._answered_s)


def look(where: Place) -> Status:
    """One look. Failed if it shows nothing."""
    try:
        return parse(source.value(where, "/status", LOOK_S, ANSWER_BYTES_MAX))
    except Unexpected as error:
        raise Failed(f"{where.text} answers otherwise than this version expects: {error}") from error


def addresses(place: Place) -> list[Place]:
    """The addresses of a name, sorted; of IPv4 if it has any, as a host with both would count twice."""
    assert not isinstance(place.address, str)
    name, port = place.address
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
            return []
        raise Failed(f"the name cannot be looked up: {error.strerror}") from error
    except (OSError, UnicodeError) as error:
        raise Failed(f"the name cannot be looked up: {error}") from error
    hosts = {str(address[0]) for family, *_, address in found if family == socket.AF_INET}
    hosts = hosts or {f"[{address[0]}]" for family, *_, address in found if family == socket.AF_INET6}
    return sorted((source.place(f"{host}:{port}") for host in hosts), key=_sortable)


def _is_name(place: Place) -> bool:
    if isinstance(place.address, str):
        return False
    try:
        ipaddress.ip_address(place.address[0])
    except ValueError:
        return True
    return False


def _sortable(place: Place) -> bytes:
    """Addresses as numbers: 10.0.0.9 is before 10.0.0.10."""
    if isinstance(place.address, str):
        return place.address.encode()
    host, port = place.address
    return ipaddress.ip_address(host).packed + port.to_bytes(2, "big")
