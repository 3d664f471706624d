"""An nginx configuration, held against what the kernel does with its sockets and against our own time limits."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import crossplane

from stanchion.doctor import asked, event_loops, patience, queues, remedies, settings
from stanchion.doctor.facts import Facts, Listener, Network, Owner
from stanchion.doctor.finding import NOTICE, WARNING, Finding
from stanchion.doctor.patience import Patience
from stanchion.doctor.settings import Settings
from stanchion.effective import UsageError

LISTEN_BACKLOG = asked.DEFAULTS["nginx"]
PROTOCOLS = ("proxy", "uwsgi")
"""The protocols in which nginx passes requests to servers of Python apps."""
READ_TIMEOUT_S = 60.0
"""nginx's default of proxy_read_timeout and uwsgi_read_timeout."""
VERSION_OF_HTTP_1_1 = "1.29.7"
"""The first nginx that speaks HTTP/1.1 to servers by default."""


@dataclass(frozen=True)
class Directive:
    name: str
    args: tuple[str, ...]
    place: str
    """FILE:LINE."""


@dataclass(frozen=True)
class Upstream:
    name: str
    place: str
    servers: tuple[str, ...]
    keepalive: bool


@dataclass(frozen=True)
class Pass:
    """A proxy_pass or uwsgi_pass, with the directives in force there, whichever block they stand in."""

    protocol: str
    """proxy or uwsgi, with which the names of its directives begin."""
    target: str
    place: str
    in_force: Mapping[str, tuple[Directive, ...]]

    @property
    def directive(self) -> str:
        return f"{self.protocol}_pass"

    @property
    def read_timeout_s(self) -> float:
        found = self.last(f"{self.protocol}_read_timeout")
        return seconds(found.args[0]) if found else READ_TIMEOUT_S

    def last(self, name: str) -> Directive | None:
        found = self.in_force.get(name)
        return found[-1] if found else None


@dataclass(frozen=True)
class Configuration:
    listens: tuple[Directive, ...]
    upstreams: Mapping[str, Upstream]
    passes: tuple[Pass, ...]


def read(file: str) -> Configuration:
    """The configuration with all that it includes."""
    parsed = crossplane.parse(file, combine=True)
    if parsed["errors"]:
        raise UsageError(*(f"doctor: {error['error']}" for error in parsed["errors"]))
    found: list[Any] = [[], {}, []]
    _walk(parsed["config"][0]["parsed"], {}, *found)
    return Configuration(tuple(found[0]), found[1], tuple(found[2]))


def _walk(
    block: Sequence[Mapping[str, Any]],
    outer: Mapping[str, tuple[Directive, ...]],
    listens: list[Directive],
    upstreams: dict[str, Upstream],
    passes: list[Pass],
) -> None:
    """Directives of a block are inherited by those in it, unless one of the same name stands there."""
    own: dict[str, tuple[Directive, ...]] = {}
    for entry in block:
        if "block" not in entry:
            directive = _directive(entry)
            own[directive.name] = (*own.get(directive.name, ()), directive)
    in_force = {**outer, **own}
    listens += own.get("listen", ())
    for protocol in PROTOCOLS:
        passes += (Pass(protocol, one.args[0], one.place, in_force) for one in own.get(f"{protocol}_pass", ()))
    for entry in block:
        if entry["directive"] == "upstream":
            upstreams[entry["args"][0]] = _upstream(entry)
        elif "block" in entry:
            _walk(entry["block"], in_force, listens, upstreams, passes)


def _directive(entry: Mapping[str, Any]) -> Directive:
    return Directive(entry["directive"], tuple(entry["args"]), f"{entry['file']}:{entry['line']}")


def _upstream(entry: Mapping[str, Any]) -> Upstream:
    inside = [_directive(one) for one in entry["block"]]
    servers = tuple(one.args[0] for one in inside if one.name == "server")
    return Upstream(entry["args"][0], _directive(entry).place, servers, any(one.name == "keepalive" for one in inside))


def with_backlog_asked(configuration: Configuration, facts: Facts) -> Facts:
    """The facts with the backlogs that the file asks for, which are certain, instead of guesses."""
    ours, *others = facts.networks
    listeners = tuple(
        replace(listener, backlog_asked=_backlog(found), asked_by=" and ".join(one.place for one in found))
        if (found := [one for one in configuration.listens if _is_at(one, listener)])
        else listener
        for listener in ours.listeners
    )
    return replace(facts, networks=(replace(ours, listeners=listeners), *others))


def _is_at(listen: Directive, listener: Listener) -> bool:
    owners = {asked.server(owner) for owner in listener.owners}
    return _key(listener) == _address(listen.args[0]) and (not owners or "nginx" in owners)


def _address(text: str) -> str:
    """The address of a `listen`, written like a listener's: `80`, `*:80`, `127.0.0.1`, `[::]:80`, `unix:/path`."""
    if text.startswith("unix:"):
        return text
    full = f"0.0.0.0:{text}" if text.isdigit() else text if re.search(r":\d+$", text) else f"{text}:80"
    return re.sub(r"^\*:", "0.0.0.0:", full).replace("localhost:", "127.0.0.1:")


def _backlog(listens: Sequence[Directive]) -> int:
    """The backlog of an address. Several servers may share it, and any one of them may set it."""
    given = (arg.removeprefix("backlog=") for one in listens for arg in one.args if arg.startswith("backlog="))
    return max(map(int, given), default=LISTEN_BACKLOG)


def findings(
    configuration: Configuration, facts: Facts, settings_of: Callable[[int], Settings | None]
) -> Iterator[Finding]:
    ours = facts.networks[0]
    for listen in configuration.listens:
        # If it listens already, queues.py says what is wrong with it.
        if not any(_is_at(listen, listener) for listener in ours.listeners):
            yield from _listen(listen, ours)
    for upstream in configuration.upstreams.values():
        if not upstream.keepalive:
            yield _without_keepalive(upstream)
    for one in configuration.passes:
        yield from _next_upstream(one)
        yield from _passed(one, configuration, facts, settings_of)
    yield from _websockets(configuration, facts, settings_of)


def _listen(listen: Directive, network: Network) -> Iterator[Finding]:
    somaxconn = network.number(queues.SOMAXCONN)
    given = any(arg.startswith("backlog=") for arg in listen.args)
    wanted = _backlog([listen])
    about = f"listen {' '.join(listen.args)}"
    if somaxconn is None:
        return
    if wanted > somaxconn:
        yield Finding(
            "nginx-listen-cut",
            WARNING,
            listen.place,
            f"The kernel cuts the backlog of `{about}`.",
            f"It asks for {wanted}{'' if given else ', as every listen without `backlog=`'} ({listen.place}); "
            f"net.core.somaxconn is {somaxconn}.",
            f"Nothing until more than {somaxconn + 1} wait at once; but nginx accepts fast.",
            *remedies.by_sysctl(queues.SOMAXCONN, remedies.somaxconn(wanted), network),
        )
    elif not given and wanted < somaxconn:
        yield Finding(
            "nginx-listen-short",
            NOTICE,
            listen.place,
            f"`{about}` asks for less than the kernel would give.",
            f"Without `backlog=` nginx asks for {LISTEN_BACKLOG} ({listen.place}); net.core.somaxconn is {somaxconn}.",
            f"Nothing until more than {LISTEN_BACKLOG + 1} wait at once; but nginx accepts fast.",
            (
                f"nginx.conf:  {about} backlog={somaxconn};",
                "Then reload: nginx calls listen(2) again where `backlog=` has changed.",
            ),
        )


def _without_keepalive(upstream: Upstream) -> Finding:
    return Finding(
        "nginx-no-keepalive",
        NOTICE,
        upstream.place,
        f"`upstream {upstream.name}` has no `keepalive`.",
        f"{upstream.place}; so nginx makes a connection for each request, unless that is its default by now.",
        "A little more time for each request. Each one passes the upstream's queue, and over TCP leaves a local "
        "port in TIME_WAIT.",
        (
            "nginx.conf:  keepalive 32;   in the upstream, with `proxy_http_version 1.1` and "
            '`proxy_set_header Connection ""` where it is used',
        ),
    )


def _next_upstream(one: Pass) -> Iterator[Finding]:
    name = f"{one.protocol}_next_upstream"
    directive = one.last(name)
    if directive is not None and "non_idempotent" in directive.args:
        yield Finding(
            "nginx-repeats-posts",
            WARNING,
            directive.place,
            "nginx sends a POST a second time when the first server did not answer.",
            f"`{name} {' '.join(directive.args)}` ({directive.place}), in force at {one.place}.",
            "An order may be carried out twice: a server that did not answer may have worked nevertheless.",
            (f"Take `non_idempotent` out of {directive.place}.",),
        )


def _passed(
    one: Pass, configuration: Configuration, facts: Facts, settings_of: Callable[[int], Settings | None]
) -> Iterator[Finding]:
    network = facts.networks[0]
    found = _listeners(one, configuration, network)
    for listener in found:
        yield from _short_queue(one, listener, network)
    for pid in _masters(found):
        yield from _timeouts(one, patience.of_stanchion(f"stanchion ({pid}) would", _known(pid, settings_of)))
    for owner in _others(found):
        if (known := patience.of_another(owner)) is not None:
            yield from _timeouts(one, known)
    if not any(listener.owners for listener in found):
        defaults = settings.by_default("the server that listens there cannot be seen")
        who = "stanchion would, if that is what it passes requests to"
        yield from _timeouts(one, patience.of_stanchion(who, defaults))


def _listeners(one: Pass, configuration: Configuration, network: Network) -> list[Listener]:
    """The listeners that it passes requests to."""
    targets = _targets(one, configuration)
    return [listener for listener in network.listeners if _key(listener) in targets]


def _masters(listeners: Sequence[Listener]) -> list[int]:
    """The stanchions among the owners of these listeners."""
    return sorted({pid for listener in listeners if (pid := asked.stanchion(listener)) is not None})


def _others(listeners: Sequence[Listener]) -> list[Owner]:
    """The masters of servers of other kinds that listen there."""
    found: dict[int, Owner] = {}
    for listener in listeners:
        owner = next((one for one in listener.owners if asked.server(one) not in (None, "stanchion")), None)
        if owner is not None:
            found.setdefault(owner.pid, owner)
    return list(found.values())


def _known(pid: int, settings_of: Callable[[int], Settings | None]) -> Settings:
    return settings_of(pid) or settings.by_default(f"how process {pid} was started cannot be seen")


def _key(listener: Listener) -> str:
    return f"unix:{listener.address}" if listener.family == "unix" else listener.address


def _targets(one: Pass, configuration: Configuration) -> set[str]:
    """The addresses behind it, as a listener has them: `http://name/…`, `http://unix:/path:/…`, `http://host:port/…`;
    of a uwsgi_pass without the scheme.
    """
    rest = one.target.rpartition("://")[2] if one.protocol == "uwsgi" else one.target.partition("://")[2]
    if rest.startswith("unix:"):
        servers: tuple[str, ...] = ("unix:" + rest.removeprefix("unix:").partition(":")[0],)
    else:
        name = rest.partition("/")[0]
        upstream = configuration.upstreams.get(name)
        servers = upstream.servers if upstream else (name,)
    targets = set()
    for server in servers:
        full = server if server.startswith("unix:") or re.search(r":\d+$", server) else f"{server}:80"
        host, _, port = full.rpartition(":")
        targets |= {full, full.replace("localhost:", "127.0.0.1:")}
        # A server that listens at every address listens there too.
        targets |= set() if full.startswith("unix:") or not host else {f"0.0.0.0:{port}", f"[::]:{port}"}
    return targets


def _short_queue(one: Pass, listener: Listener, network: Network) -> Iterator[Finding]:
    is_cut = listener.backlog_asked is not None and listener.backlog < listener.backlog_asked
    is_probably_cut = listener.backlog_asked is None and listener.backlog == network.number(queues.SOMAXCONN)
    is_ours = any(asked.server(owner) == "stanchion" for owner in listener.owners)
    small = listener.backlog < queues.SMALL_BACKLOG
    if listener.family == "unix" and small and (is_cut or is_probably_cut) and not is_ours:
        yield Finding(
            "nginx-upstream-cut",
            WARNING,
            one.place,
            f"nginx passes requests to {queues.named(listener, network)}, whose queue is short.",
            f"`{one.directive} {one.target}` ({one.place}); backlog in force {listener.backlog} "
            f"({queues.source(listener)}).",
            f"502 for each client beyond the {listener.room} that wait: {queues.clients_of_full(listener, network)}",
            (remedies.listen_again(listener),),
            network=network.link,
        )


def _timeouts(one: Pass, theirs: Patience) -> Iterator[Finding]:
    """nginx must not give up before the server does (docs/proxies.md)."""
    limit_s = theirs.seconds
    if limit_s is None or one.read_timeout_s >= limit_s:
        return
    name = f"{one.protocol}_read_timeout"
    directive = one.last(name)
    where = directive.place if directive else f"nginx's default, at {one.place}"
    parts = " and ".join(f"{part.verb} {part.seconds:g} s ({part.known})" for part in theirs.limits)
    reason = ", without a reason in our log" if theirs.is_ours else ""
    yield Finding(
        "nginx-gives-up-first",
        WARNING if one.read_timeout_s < theirs.certain_seconds else NOTICE,
        one.place,
        f"nginx gives up before {theirs.who}.",
        f"{name} is {one.read_timeout_s:g} s ({where}). A request may {parts}.",
        f"504 from nginx{reason}, while their request still waits or runs.",
        (f"nginx.conf:  {name} {limit_s + 10:g}s;",),
    )


def _websockets(
    configuration: Configuration, facts: Facts, settings_of: Callable[[int], Settings | None]
) -> Iterator[Finding]:
    """Findings about the fields that nginx needs to pass WebSockets on (its documentation, "WebSocket proxying"). One
    place for each server is enough, as other places may be for the rest of the app.
    """
    passes: dict[int, list[Pass]] = {}
    for one in configuration.passes:
        # The uwsgi protocol has no way to pass them on.
        for pid in _masters(_listeners(one, configuration, facts.networks[0])) if one.protocol == "proxy" else ():
            passes.setdefault(pid, []).append(one)
    for pid, to_it in sorted(passes.items()):
        known = _known(pid, settings_of)
        if not event_loops.has_websockets(pid, known, facts):
            continue
        upgrading = [one for one in to_it if _field(one, "upgrade")]
        if not upgrading:
            yield _without_upgrade(pid, to_it)
        for one in upgrading:
            yield from _handshake(one)
            yield from _pings(one, known)


def _field(one: Pass, name: str) -> str:
    """The value that nginx is set to send in a field; empty if it is not set."""
    fields = {args[0].lower(): args[1:] for each in one.in_force.get("proxy_set_header", ()) if (args := each.args)}
    return "".join(fields.get(name, ()))


def _without_upgrade(pid: int, passes: Sequence[Pass]) -> Finding:
    return Finding(
        "nginx-no-upgrade",
        NOTICE,
        passes[0].place,
        f"nginx passes no WebSockets on to stanchion ({pid}).",
        f"There is no `proxy_set_header Upgrade` in force at {', '.join(one.place for one in passes)}, and nginx takes "
        "that field out otherwise.",
        "A client that asks for a WebSocket gets the app's answer to a plain GET, mostly 404 or 405. Nothing, if there "
        "are no WebSockets.",
        (
            "nginx.conf:  proxy_http_version 1.1; proxy_set_header Upgrade $websocket;",
            "             proxy_set_header Connection $connection_upgrade;",
            "             in the location of the WebSockets (docs/proxies.md)",
        ),
    )


def _handshake(one: Pass) -> Iterator[Finding]:
    directive = one.last("proxy_http_version")
    version = directive.args[0] if directive else None
    connection = _field(one, "connection").lower()
    is_spoilt = version == "1.0" or connection in ("", "close", "keep-alive")
    if not is_spoilt and version is not None:
        return
    yield Finding(
        "nginx-upgrade-fails",
        WARNING if is_spoilt else NOTICE,
        one.place,
        "nginx spoils the handshake of WebSockets.",
        f"At {one.place} Upgrade is passed on, Connection is {repr(connection) if connection else 'not set'}, and "
        f"proxy_http_version is {version or f'not set, which means 1.0 before nginx {VERSION_OF_HTTP_1_1}'}. It takes "
        "`Connection: upgrade` over HTTP/1.1 (RFC 6455 section 4.1).",
        "No WebSocket: the app takes the handshake for a plain GET, or it is answered 400.",
        (
            "nginx.conf:  proxy_http_version 1.1;",
            "             proxy_set_header Connection $connection_upgrade;   (docs/proxies.md)",
        ),
    )


def _pings(one: Pass, ours: Settings) -> Iterator[Finding]:
    """nginx must hear of each WebSocket before it gives it up."""
    ping_s = float(ours.values["ws_ping_interval"])
    directive = one.last("proxy_read_timeout")
    read_s = one.read_timeout_s
    if (ping_s == 0.0 or ping_s >= read_s) and "ws_ping_interval" not in ours.assumed:
        yield Finding(
            "nginx-cuts-websockets",
            WARNING,
            one.place,
            "nginx cuts WebSockets off on which nothing is said for a while.",
            f"proxy_read_timeout is {read_s:g} s ({directive.place if directive else 'the default of nginx'}); pings "
            + (f"are sent every {ping_s:g} s" if ping_s else "are off")
            + f" (ws_ping_interval; {ours.sources['ws_ping_interval']}).",
            f"The connection ends without a close frame after {read_s:g} s without a message of the app (code 1006).",
            (f"Start the server with --ws-ping-interval {max(1.0, read_s / 3):.0f}.",),
        )


_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "M": 2_592_000, "y": 31_536_000}


def seconds(text: str) -> float:
    """A time as nginx writes it: 90, 90s, 1m30s, 500ms."""
    parts = re.findall(r"(\d+)\s*(ms|[smhdwMy]?)", text)
    return sum(int(number) * _UNITS_S[unit or "s"] for number, unit in parts)
