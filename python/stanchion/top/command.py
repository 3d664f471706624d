"""The command line of `stanchion top`."""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stanchion import ctl
from stanchion.arguments import Parser, ask_for_help
from stanchion.effective import UsageError
from stanchion.output import as_json, complain
from stanchion.top import sockets, source
from stanchion.top.words import encodable

if TYPE_CHECKING:
    from rich.text import Text

    from stanchion.doctor.settings import Parse
    from stanchion.top.hosts import AllHosts

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_NOBODY = 3

# Seconds between two looks.
INTERVAL_S = 1.0
INTERVAL_S_MIN = 0.1
INTERVAL_S_MAX = 3600.0

# Where the page of several servers is, unless the user says otherwise.
PAGE_AT = "127.0.0.1:9200"

USAGE = """\
Usage: stanchion top [--admin ADDRESS] [--control unix:PATH] [-c CONFIG]
                     [--interval SECONDS] [--once] [--json]
       stanchion top --hosts ADDRESS,... [--interval SECONDS]
                     [--once] [--json] [--serve [HOST:PORT]]
       stanchion top --any [--interval SECONDS] [--once] [--json]

Shows the waiting line, the seats (where workers run requests) and the kernel's
queues of a running server.
Press ? on the screen for its keys.

Where the server is: --admin HOST:PORT or unix:PATH, else $STANCHION_ADMIN,
else `admin` as `stanchion serve` would find it here (STANCHION_CMD_ARGS, then
config file), else the one server of this host that has an admin listener. The
stacks of a worker come through its control socket, which is found in the same
way: --control, $STANCHION_CONTROL, `control`.

  --hosts ADDRESS,... Show several servers in one table, and one line: the
                      addresses of their admin listeners. A name stands for all
                      of its addresses, such as the pods behind a headless
                      Service, and is looked up every 5 seconds
  --serve [HOST:PORT] Show them as a web page instead, like an admin listener's
                      (default: 127.0.0.1:9200)
  --any               Show every listening socket of this host instead, of
                      whatever server: what waits, and what is dropped
  --interval SECONDS  Time between two looks (default: 1)
  --once              Print one screen, of two looks, and end
  --json              Print what /status says, or the sockets or the table of
                      hosts, an object on a line for each look; with --once, of
                      one look, of hosts of two

Exit codes: 0 done; 1 failed, the reason is on standard error; 2 wrong usage;
3 there is no server, of several none answers (with --once); 128 + the signal
that ended it."""

Setting = Callable[[str, str | None], str | None]
"""Finds a setting that is an address, given its name and a config file or None."""


def run(arguments: Sequence[str], setting: Setting, parse: "Parse") -> int:
    """Run the command, in one of its ways to look; the exit code."""
    if ask_for_help(arguments):
        print(USAGE)
        return EXIT_DONE
    options = _parse(arguments)
    of_one = options.admin or options.control or options.config
    if options.serve and (not options.hosts or options.once or options.json):
        raise UsageError("top: --serve needs --hosts, and shows them on a page: --once and --json have no effect there")
    if options.any:
        if of_one or options.hosts:
            raise UsageError(
                "top: --any looks at the host: --admin, --control and --config are for one server, --hosts for several"
            )
        return _ended(lambda: _any(options.interval, options.once, options.json))
    if options.hosts is not None:
        if of_one:
            raise UsageError("top: --hosts is for several servers: --admin, --control and --config are for one")
        return _ended(lambda: _hosts(options))
    admin = options.admin or os.environ.get("STANCHION_ADMIN") or setting("admin", options.config)
    if not admin:
        # Only then: it imports what the doctor needs.
        from stanchion.top import found

        server = found.only(parse)
        admin, options.control = server.admin, options.control or server.control
    where = source.place(admin)
    return _ended(lambda: _server(where, options, setting))


def _server(where: source.Place, options: argparse.Namespace, setting: Setting) -> int:
    if options.json:
        return _as_json(lambda: source.status(where), options.interval, options.once)
    _need_rich()
    if options.once:
        return _once(where, options.interval)
    _need_terminal()
    from stanchion.top import live

    return live.run(where, _control(options, setting), options.interval)


def _any(interval_s: float, once: bool, as_json: bool) -> int:
    if as_json:
        before: sockets.Look | None = None

        def seen() -> object:
            nonlocal before
            now = sockets.look()
            host, before = sockets.host(before, now), now
            return sockets.as_json(host)

        return _as_json(seen, interval_s, once)
    _need_rich()
    if once:
        return _once_any(interval_s)
    _need_terminal()
    from stanchion.top import live

    return live.run_any(interval_s)


def _hosts(options: argparse.Namespace) -> int:
    from stanchion.top import hosts, hosts_page
    from stanchion.top.hosts_watch import HostsWatch, places

    given = places(options.hosts)
    at = hosts_page.address(options.serve) if options.serve else None
    if not options.json and not at:
        _need_rich()
        if not options.once:
            _need_terminal()
    watch = HostsWatch(given, options.interval)
    try:
        if at:
            return hosts_page.run(watch, at)
        if options.once:
            # Rates are of the time between two looks.
            watch.wait(2)
            return _once_hosts(hosts.summed(watch.seen()), options.json)
        if options.json:
            watch.wait(1)
            return _as_json(lambda: hosts.as_json(hosts.summed(watch.seen())), options.interval, False)
        from stanchion.top import live

        return live.run_hosts(watch, options.interval)
    finally:
        watch.end()


def _ended(command: Callable[[], int]) -> int:
    """The exit code of a command, whatever ends it."""
    try:
        return command()
    except source.Failed as failure:
        _say(str(failure))
        return EXIT_NOBODY if isinstance(failure, source.Nobody) else EXIT_FAILED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader, such as head, has seen enough; what Python flushes at exit must go elsewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("top")
    parser.add_argument("--admin", metavar="ADDRESS")
    parser.add_argument("--control", metavar="unix:PATH")
    parser.add_argument("-c", "--config")
    parser.add_argument("--hosts", metavar="ADDRESS,...")
    parser.add_argument("--serve", nargs="?", const=PAGE_AT, metavar="HOST:PORT")
    parser.add_argument("--any", action="store_true")
    parser.add_argument("--interval", type=_interval, default=INTERVAL_S, metavar="SECONDS")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def _interval(text: str) -> float:
    seconds = float(text)
    # Written so that NaN is refused too.
    if not INTERVAL_S_MIN <= seconds <= INTERVAL_S_MAX:
        raise argparse.ArgumentTypeError(
            f"expected seconds between {INTERVAL_S_MIN} and {INTERVAL_S_MAX:.0f}, got {text!r}"
        )
    return seconds


def _control(options: argparse.Namespace, setting: Setting) -> str | None:
    control = options.control or os.environ.get("STANCHION_CONTROL") or setting("control", options.config)
    return ctl.socket_path(control) if control else None


def _as_json(seen: Callable[[], object], interval_s: float, once: bool) -> int:
    trouble = ""
    while True:
        try:
            print(as_json(seen()), flush=True)
            trouble = ""
        except source.Failed as failure:
            if once:
                raise
            if str(failure) != trouble:
                trouble = str(failure)
                _say(f"{trouble}; trying again")
        if once:
            return EXIT_DONE
        time.sleep(interval_s)


def _once(where: source.Place, interval_s: float) -> int:
    from stanchion.top.lines import View, screen
    from stanchion.top.looker import look
    from stanchion.top.model import model

    before = look(where)
    # Rates are of the time between two looks.
    time.sleep(interval_s)
    return _print(screen(model(before, look(where)), View(), shutil.get_terminal_size().columns, None))


def _once_any(interval_s: float) -> int:
    from stanchion.top.board import View, screen

    before = sockets.look()
    time.sleep(interval_s)
    return _print(screen(sockets.host(before, sockets.look()), View(), shutil.get_terminal_size().columns, None))


def _once_hosts(found: "AllHosts", as_objects: bool) -> int:
    from stanchion.top import hosts

    if as_objects:
        print(as_json(hosts.as_json(found)), flush=True)
    else:
        from stanchion.top.hosts_board import View, screen

        _print(screen(found, View(), shutil.get_terminal_size().columns, None))
    return EXIT_DONE if found.answering else EXIT_NOBODY


def _print(lines: Sequence["Text"]) -> int:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        for line in lines:
            console.print(line, soft_wrap=True)
    sys.stdout.write(encodable(capture.get(), sys.stdout.encoding).decode(sys.stdout.encoding))
    sys.stdout.flush()
    return EXIT_DONE


def _need_terminal() -> None:
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        raise source.Failed("standard output is no terminal that can show a screen; --once and --json need none")


def _need_rich() -> None:
    try:
        import rich  # noqa: F401
    except ImportError as error:
        raise source.Failed("the screen needs rich: pip install 'stanchion[top]'; --json needs nothing") from error


def _say(text: str) -> None:
    complain(f"stanchion top: {text}")
