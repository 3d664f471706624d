"""An experiment is one TOML file, read and checked here. docs/lab/writing-an-experiment.md has it by example."""

import ipaddress
import math
import re
import signal
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

SHIPPED = Path(__file__).parent / "experiments"
# No load is longer, and none has more of these: traffic on one machine must end by itself.
SECONDS_MAX = 1_800.0
REQUESTS_MAX = 5_000_000
CONNECTIONS_MAX = 20_000
REPEATS_MAX = 20
HOSTS = ipaddress.IPv4Network("10.99.0.0/24")
"""The bridge of a trial with hosts. The client has its last address."""
CLIENT = HOSTS[-2]

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Size = Literal["quick", "full"]
ServerKind = Literal[
    "stanchion", "gunicorn", "granian", "uwsgi", "unicorn", "puma", "nginx", "haproxy", "envoy", "program", "ideal"
]
FRONTS = ("nginx", "haproxy", "envoy")
"""The kinds that pass requests on."""
ToolName = Literal["own", "vegeta", "oha", "siege", "ab", "httperf"]


class Mistake(Exception):
    """A mistake of the operator; the text says what is wrong in which file, and what would be right."""


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that listens. In a namespace of its own every port is free."""

    kind: ServerKind
    listen: str
    """`127.0.0.1:8000`, or `unix:app.sock`, in the directory of the trial."""
    app: str = ""
    """MODULE:NAME for Python, a .ru file for Ruby; looked for beside the TOML file, then among the lab's own."""
    config: str = ""
    """Of a front: a template, looked for in the same places. `$listen`, `$upstream`, `$servers` and `values` are filled
    in."""
    command: list[str] = []
    """Kind `program`: what to run; `{python}`, `{listen}`, `{workers}` and `{files}` (where the TOML file is) are
    filled in."""
    upstream: str = ""
    """The name of the server behind it. Behind a front that names none are all servers of the trial that have `hosts`,
    or else the one that is started before it."""
    hosts: NotNegative = 0
    """It is started so many times, as NAME-1, NAME-2 …, each on a host of its own, which is a network namespace on one
    bridge. `listen` is the address of the first, the others count up; in `options`, `{host}` is each one's own."""
    workers: Positive = 1
    threads: Positive = 1
    backlog: int | None = None
    """The backlog that it asks listen(2) for; its own default where None."""
    options: list[str] = []
    values: dict[str, str | int] = {}
    environment: dict[str, str] = {}


class Ramp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rates one after the other, each for `for_s` of the load, until requests fail."""

    from_per_s: Annotated[float, msgspec.Meta(gt=0)]
    to_per_s: float
    step_per_s: Annotated[float, msgspec.Meta(gt=0)]


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Open loop, if it has a rate: requests come when they are due. Else closed: each client asks again when it has
    its answer, `requests` times in all or for `for_s`."""

    tools: Annotated[list[ToolName], msgspec.Meta(min_length=1)] = msgspec.field(default_factory=lambda: ["own"])
    """The first that is installed is taken."""
    to: str = ""
    """The server that is asked; the last one of the trial, where empty. If it has several hosts, each connection is to
    one of them at random."""
    rate_per_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    arrivals: Literal["even", "poisson"] = "even"
    ramp: Ramp | None = None
    for_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    requests: NotNegative = 0
    connections: NotNegative = 0
    """Clients of a closed loop; with an open loop and keep-alive, connections that are kept."""
    copies: Positive = 1
    """So many of this load at once, as from that many machines: each with its own connections and requests."""
    keep_alive: bool = False
    paths: dict[str, float] = msgspec.field(default_factory=lambda: {"/": 1.0})
    """Each path with its share of the requests."""
    method: Literal["GET", "POST"] = "GET"
    numbered: bool = False
    """Each request has its number in X-Number. If the app adds it to the file `ran`, the result tells which requests
    ran, and how often."""
    patience_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """Then the client gives up."""
    hang_up: bool = True
    """Close the connection once patience ends; else keep it, as a proxy does that ignores that its client has left."""


class Deed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act while the load runs: on a server, on its host's link, or on a file in the trial's directory."""

    at_s: float
    server: str = ""
    """Of a server with hosts, `app-2` is the second, and `app` all of them."""
    signal: str = ""
    whom: Literal["master", "worker", "all"] = "master"
    """`worker` is any one child of the last generation that serves, `all` is each process of the server."""
    start: bool = False
    """Start the server again, which has ended."""
    link: Literal["", "down", "up"] = ""
    touch: str = ""
    remove: str = ""


class Trial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Servers, a kernel and a load: what is measured."""

    name: str
    title: str
    servers: list[str]
    """In the order in which they are started: those behind first."""
    load: str
    sysctl: dict[str, int] = {}
    """Settings of the trial's own network namespace."""
    deeds: list[Deed] = []


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A shape that is expected, as figures of trials: `of = "small:gateway", be = ">", than = "large:gateway"`."""

    text: str
    of: str
    be: Literal["<", "<=", "==", ">=", ">"]
    than: float | str
    times: float = 1.0
    """`than` is multiplied by it."""
    unless: str = ""
    """Where it is known not to hold, and why: said beside the verdict."""


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure of the document that the experiment is from."""

    trial: str
    figure: str
    value: float
    note: str = ""


class Plot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A picture of some trials. `of` says which figure or sample, where the kind needs that."""

    kind: Literal["outcomes", "bars", "histogram", "shares", "latencies", "timeline", "ramp"]
    title: str
    trials: list[str] = []
    """All of them, where empty."""
    of: str = ""


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    question: str
    origin: str
    """Where the experiment is from, in words."""
    reading: str
    """The way to read the results, and why published ones may differ."""
    repeats: int = 1
    servers: dict[str, Server]
    loads: dict[str, Load]
    trials: list[Trial]
    only: list[str] = []
    """The trials that are run; all, where empty. For `quick`."""
    plots: list[Plot] = []
    table: list[str] = []
    """The figures of the table of results, in order."""
    claims: list[Claim] = []
    published: list[Published] = []


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario, and where it lies."""

    name: str
    path: Path
    size: Size
    scenario: Scenario


def behind(scenario: Scenario, trial: Trial) -> dict[str, list[str]]:
    """For each server of a trial the names of those behind it. Without `upstream`, only a front passes requests on: to
    all that have hosts, or else to the server before it in the list."""
    hosted = [name for name in trial.servers if scenario.servers[name].hosts]
    fleet = [name for name in hosted if scenario.servers[name].kind not in FRONTS]
    found = {}
    before: list[str] = []
    for name in trial.servers:
        server = scenario.servers[name]
        found[name] = [server.upstream] if server.upstream else (fleet or before) if server.kind in FRONTS else []
        before = [name]
    return found


def copies(name: str, server: Server) -> dict[str, Server]:
    """The servers that are started for one of a trial: itself, or one for each host, by their names."""
    if not server.hosts:
        return {name: server}
    host, _, port = server.listen.rpartition(":")
    found = {}
    for number, copy in enumerate(copy_names(name, server)):
        own = str(ipaddress.IPv4Address(host) + number)
        options = [option.replace("{host}", own) for option in server.options]
        found[copy] = msgspec.structs.replace(server, listen=f"{own}:{port}", options=options, hosts=1)
    return found


def copy_names(name: str, server: Server) -> list[str]:
    return [f"{name}-{number}" for number in range(1, server.hosts + 1)] or [name]


def rates(load: Load) -> int:
    """The number of rates that the load has, one after the other."""
    if load.ramp is None:
        return 1
    # The last one is wanted though ten steps of 0.1 are not quite 1.
    return 1 + int((load.ramp.to_per_s - load.ramp.from_per_s) / load.ramp.step_per_s + 1e-9)


def lasts_s(load: Load) -> float:
    """Each of its rates, at most; the last requests may take their patience beside."""
    if load.for_s:
        return load.for_s
    return min(SECONDS_MAX, math.ceil(load.requests / load.connections) * load.patience_s)


def shipped() -> Iterator[Path]:
    yield from sorted(SHIPPED.glob("*.toml"))


def read(name: str, size: Size, repeats: int | None = None) -> Experiment:
    """A shipped experiment by its name, or one's own by the path of its file. The tables `quick` and `full` of the
    file are laid over the rest, and `repeats` over them. Mistake, if it cannot be run as it stands."""
    own = name.endswith(".toml")
    path = Path(name) if own else SHIPPED / f"{name}.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        known = ", ".join(one.stem for one in shipped())
        raise Mistake(f"there is no experiment {name}: it is one of {known}, or a file that ends in .toml") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Mistake(f"{path}: {error}") from error
    over = {each: table.pop(each, {}) for each in ("quick", "full")}[size]
    if not isinstance(over, Mapping):
        raise Mistake(f"{path}: {size} must be a table")
    whole = _laid_over(table, over)
    if repeats is not None:
        whole["repeats"] = repeats
    try:
        scenario = msgspec.convert(whole, Scenario)
    except msgspec.ValidationError as error:
        raise Mistake(f"{path}: {error}") from error
    complaints = list(_complaints(scenario))
    if complaints:
        raise Mistake("\n".join(f"{path}: {complaint}" for complaint in complaints))
    if scenario.only:
        scenario = _cut_down(scenario)
    return Experiment(name=path.stem, path=path.absolute(), size=size, scenario=scenario)


def _cut_down(scenario: Scenario) -> Scenario:
    """To the trials of `only`, and to what is said of them."""
    names = set(scenario.only)

    def known(reference: object) -> bool:
        return not isinstance(reference, str) or reference.partition(":")[0] in names

    plots = []
    for plot in scenario.plots:
        left = [name for name in plot.trials if name in names]
        if left or not plot.trials:
            plots.append(msgspec.structs.replace(plot, trials=left))
    return msgspec.structs.replace(
        scenario,
        trials=[trial for trial in scenario.trials if trial.name in names],
        plots=plots,
        claims=[claim for claim in scenario.claims if known(claim.of) and known(claim.than)],
        published=[one for one in scenario.published if one.trial in names],
    )


def _laid_over(table: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    laid = dict(table)
    for key, value in over.items():
        both_tables = isinstance(value, Mapping) and isinstance(laid.get(key), Mapping)
        laid[key] = _laid_over(laid[key], value) if both_tables else value
    return laid


def _complaints(scenario: Scenario) -> Iterator[str]:
    trials = {trial.name: trial for trial in scenario.trials}
    if len(trials) < len(scenario.trials):
        yield "two trials have one name"
    yield from (f"only: there is no trial {name}" for name in scenario.only if name not in trials)
    if not 1 <= scenario.repeats <= REPEATS_MAX:
        yield f"repeats must be from 1 to {REPEATS_MAX}"
    for name, load in scenario.loads.items():
        yield from (f"loads.{name}: {complaint}" for complaint in _of_load(load))
    for trial in scenario.trials:
        where = f"trial {trial.name}"
        if trial.load not in scenario.loads:
            yield f"{where}: there is no load {trial.load}"
        elif (to := scenario.loads[trial.load].to) and to not in trial.servers:
            yield f"{where}: load {trial.load} is to {to}, which is not among its servers"
        if not trial.servers:
            yield f"{where}: names no server"
        if len(set(trial.servers)) < len(trial.servers):
            yield f"{where}: names a server twice"
        started: set[str] = set()
        for name in trial.servers:
            server = scenario.servers.get(name)
            if server is None:
                yield f"{where}: there is no server {name}"
            elif server.upstream and server.upstream not in started:
                yield f"{where}: {server.upstream} is behind {name} and must be named before it"
            elif server.hosts and not _is_on_the_bridge(server):
                yield f"{where}: {name} has hosts: its first must listen at {HOSTS[1]} to {HOSTS[-3]}, with a port"
            started.add(name)
        # Only these belong to a network namespace; any other would be the host's.
        yield from (
            f"{where}: sysctl {name}: only those of net. can be set for a trial"
            for name in trial.sysctl
            if not re.fullmatch(r"net(\.[a-z0-9_]+)+", name)
        )
        yield from (f"{where}: {c}" for c in _of_deeds(scenario, trial))
    for claim in scenario.claims:
        for reference in (claim.of, claim.than):
            if isinstance(reference, str) and reference.partition(":")[0] not in trials:
                yield f"claim {claim.text!r}: {reference} is not TRIAL:FIGURE of a trial here"
    for one in scenario.published:
        if one.trial not in trials:
            yield f"published: there is no trial {one.trial}"
    for plot in scenario.plots:
        yield from (f"plot {plot.title!r}: there is no trial {name}" for name in plot.trials if name not in trials)


def _of_load(load: Load) -> Iterator[str]:
    whole_s = load.for_s * rates(load)
    fastest_per_s = load.rate_per_s if load.ramp is None else load.ramp.to_per_s
    if whole_s > SECONDS_MAX or load.patience_s > SECONDS_MAX:
        yield f"must end within {SECONDS_MAX:.0f} s"
    if load.copies * max(load.requests, fastest_per_s * whole_s) > REQUESTS_MAX:
        yield f"has more than {REQUESTS_MAX} requests"
    if load.copies > 1 and load.ramp is not None:
        yield "must have no ramp if there are several copies of it"
    if load.copies * load.connections > CONNECTIONS_MAX:
        yield f"has more than {CONNECTIONS_MAX} connections"
    if not load.paths or min(load.paths.values()) <= 0:
        yield "needs paths, each with a share above 0"
    if load.ramp is not None or load.rate_per_s > 0:
        if load.for_s <= 0:
            yield "has a rate, and needs for_s"
        if load.keep_alive and load.connections <= 0:
            yield "keeps connections alive, and needs to know how many: connections"
    elif load.connections <= 0 or (load.requests <= 0 and load.for_s <= 0):
        yield "needs a rate_per_s with for_s, or connections with requests or for_s"
    if load.ramp is not None and load.ramp.from_per_s > load.ramp.to_per_s:
        yield "its ramp must go up"


def _is_on_the_bridge(server: Server) -> bool:
    """Whether all its hosts have addresses there; the last is the bridge's own, where the client is."""
    host, _, port = server.listen.rpartition(":")
    try:
        first = ipaddress.IPv4Address(host)
    except ipaddress.AddressValueError:
        return False
    return port.isdecimal() and HOSTS[0] < first and first + server.hosts - 1 < CLIENT and first in HOSTS


def _of_deeds(scenario: Scenario, trial: Trial) -> Iterator[str]:
    known = {name: scenario.servers[name] for name in trial.servers if name in scenario.servers}
    hosted = {copy for name, server in known.items() if server.hosts for copy in (name, *copy_names(name, server))}
    for deed in trial.deeds:
        if sum(map(bool, (deed.signal, deed.start, deed.link, deed.touch, deed.remove))) != 1:
            yield "each deed is one of signal, start, link, touch and remove"
        if deed.signal and f"SIG{deed.signal}" not in signal.Signals.__members__:
            yield f"a deed: there is no signal {deed.signal}: it is one as KILL, HUP, STOP"
        if (deed.signal or deed.start) and deed.server not in {*known, *hosted}:
            yield f"a deed is about {deed.server or 'no server'}, which is not among its servers"
        if deed.link and deed.server not in hosted:
            yield f"a deed cuts the link of {deed.server or 'no server'}, which has no host of its own"
