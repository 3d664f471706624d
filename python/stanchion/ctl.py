"""`stanchion ctl`: commands to a running server over its control socket, and its answers for people.

crates/stanchion-server/src/control/ defines the protocol of the socket: one JSON object on a line for each request, and
one for each answer.
"""

import contextlib
import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stanchion.arguments import Parser, ask_for_help, seconds
from stanchion.effective import UsageError
from stanchion.output import as_json, complain, printable, show

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_NOBODY = 3

# Seconds to wait for the answer to a command that the server carries out at once.
PROMPT_S = 10.0

# A day: no command takes longer.
TIMEOUT_S_MAX = 86_400.0

# The largest number that the request has room for; the server knows how many workers it has room for.
WORKERS_MAX = 0xFFFF
_WORKERS_DIGITS_MAX = 5

# The server keeps its answers below this; it is checked here too, as any process may listen there.
ANSWER_BYTES_MAX = 4 * 1024 * 1024 + 1024

_PREFIX = "unix:"

# `struct ucred` in unix(7).
_CREDENTIALS = struct.Struct("iII")

USAGE = """\
Usage: stanchion ctl [--control unix:PATH] [-c CONFIG] [--json]
                     [--timeout SECONDS] [--wait] COMMAND

Commands:
  status    What the server is doing
  workers   What each worker is doing
  reload    Load configuration and code again; ends when the new code serves
  upgrade   Hand over to the stanchion installed now; ends when that one serves
  scale N   Keep N workers
  scale auto
            Keep as many workers as the line needs, if `workers` is a range
  drain     Serve present clients, then stop; ends when that has begun, or with
            --wait when the server has ended
  reopen    Open the log files again
  quit      Stop now; with --wait as above
  dump      Show the Python stacks of all workers
  refork    Have the worker that has answered the most requests become the
            template; ends when all workers are forks of it

Where the server is: --control, else $STANCHION_CONTROL, else `control` as
`stanchion serve` would find it here (STANCHION_CMD_ARGS, then config file).

  --json             Print the server's answer as it came
  --timeout SECONDS  Wait no longer for the answer (default: as long as it
                     takes for reload, upgrade, dump, refork and --wait,
                     else 10)
  --wait             With drain or quit: end when the server has ended

Exit codes: 0 done; 1 refused or failed, the reason is on standard error;
2 wrong usage; 3 there is no server."""


class Failed(Exception):
    """The command has failed, or its result is unknown; the text says why, and the program ends with `exit_code`."""

    def __init__(self, reason: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class CommandLine(NamedTuple):
    """The command, its request and its options, from the command line."""

    command: str
    request: Mapping[str, Any]
    control: str | None
    config: str | None
    json: bool
    timeout_s: float | None
    wait: bool
    """For the server's end."""


# The commands, and whether their end is worth waiting for however long it takes.
_LASTING = {
    "status": False,
    "workers": False,
    "reload": True,
    "upgrade": True,
    "scale": False,
    "drain": False,
    "reopen": False,
    "quit": False,
    "dump": True,
    "refork": True,
}

_ENDING = ("drain", "quit")


def run(arguments: Sequence[str], control_of: Callable[[str | None], str | None]) -> int:
    """Give one command; the exit code. `control_of` finds the `control` setting, given a config file or None."""
    if ask_for_help(arguments):
        show(USAGE)
        return EXIT_DONE
    given = parse(arguments)
    path = socket_path(given.control or os.environ.get("STANCHION_CONTROL") or control_of(given.config))
    try:
        with Call(path, given.timeout_s) as call:
            answer = checked(call.ask(given.request))
            if given.json:
                show(as_json(answer))
            if not answer["ok"]:
                raise Failed(answer["message"])
            if not given.json:
                show(shown(given.command, answer))
            if given.wait:
                call.wait_for_end()
    except Failed as failure:
        complain(f"stanchion ctl: {failure}")
        return failure.exit_code
    return EXIT_DONE


def parse(arguments: Sequence[str]) -> CommandLine:
    """The command that the words mean. UsageError where they mean none."""
    parser = Parser("ctl")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--control", metavar="unix:PATH")
    parser.add_argument("-c", "--config")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--timeout", type=seconds(TIMEOUT_S_MAX), metavar="SECONDS")
    options = parser.parse_intermixed_args(arguments)
    request = _request(options.words)
    command = options.words[0]
    if options.wait and command not in _ENDING:
        raise UsageError(f"ctl: --wait waits for the server's end, so it goes with {' and '.join(_ENDING)} alone")
    timeout_s = None if _LASTING[command] or options.wait else PROMPT_S
    return CommandLine(
        command,
        request,
        options.control,
        options.config,
        options.json,
        timeout_s if options.timeout is None else options.timeout,
        options.wait,
    )


def _request(words: Sequence[str]) -> dict[str, Any]:
    if not words:
        raise UsageError("ctl: which command? `stanchion ctl --help` lists them")
    command, *rest = words
    if command not in _LASTING:
        raise UsageError(f"ctl: there is no command {command}; there are {', '.join(_LASTING)}")
    if command != "scale":
        if rest:
            raise UsageError(f"ctl: {command} wants no more words, not {rest[0]!r}")
        return {"command": command}
    number = rest[0] if len(rest) == 1 else ""
    if number == "auto":
        return {"command": number}
    is_number = number.isascii() and number.isdigit() and len(number) <= _WORKERS_DIGITS_MAX
    if not is_number or int(number) > WORKERS_MAX:
        raise UsageError(
            f"ctl: scale wants auto or a number of workers up to {WORKERS_MAX}, as in `stanchion ctl scale 4`"
        )
    return {"command": command, "workers": int(number)}


def socket_path(control: str | None) -> str:
    if not control:
        raise UsageError(
            "ctl: where is the server? Name its control socket: --control unix:PATH, STANCHION_CONTROL, "
            "or `control` in the config file (the server needs it too)"
        )
    path = control.removeprefix(_PREFIX)
    if path == control or not path or path.startswith("@"):
        raise UsageError(f"ctl: the control socket is written unix:PATH, not {control!r}")
    return path


class Call:
    """A connection that sends a server one command; Failed if there is no server, or no answer in time."""

    def __init__(self, path: str, timeout_s: float | None) -> None:
        self._where = f"{_PREFIX}{path}"
        self._timeout_s = timeout_s
        self._until = None if timeout_s is None else time.monotonic() + timeout_s
        self._connection = socket.socket(socket.AF_UNIX)
        try:
            self._connect(path)
            # Before the server can leave: later its pid may belong to another process.
            self._server = self._pidfd()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> "Call":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        if self._server is not None:
            os.close(self._server)

    def _connect(self, path: str) -> None:
        self._connection.settimeout(self._timeout_s)
        try:
            self._connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            reason = f"no server listens at {self._where}: is it running, and with this `control`?"
            raise Failed(reason, EXIT_NOBODY) from error
        except BlockingIOError as error:
            raise Failed(f"too many connections wait at {self._where} to be accepted; try again") from error
        except OSError as error:
            raise Failed(f"cannot connect to {self._where}: {error.strerror or error}") from error

    def _pidfd(self) -> int | None:
        """The master, which listens (SO_PEERCRED in unix(7)); None if it is out of our sight or has gone."""
        credentials = self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, _, _ = _CREDENTIALS.unpack(credentials)
        try:
            return os.pidfd_open(pid)
        except (OSError, ValueError):
            return None

    def ask(self, request: Mapping[str, Any]) -> bytes:
        """Send one request and give the line that answers it."""
        try:
            return _exchange(self._connection, request, self._until)
        except TimeoutError as error:
            reason = f"no answer within {self._timeout_s:g} s; what was ordered may still be done: see the server's log"
            raise Failed(reason) from error
        except OSError as error:
            raise Failed(f"the connection to {self._where} broke: {error.strerror or error}") from error

    def wait_for_end(self) -> None:
        """Until the server has ended."""
        if self._server is None:
            raise Failed("the server's end cannot be waited for: its process is not seen from here")
        left_s = None if self._until is None else max(0.0, self._until - time.monotonic())
        # A descriptor of a process is readable when that has ended (pidfd_open(2)).
        if not select.select([self._server], [], [], left_s)[0]:
            raise Failed(f"the server has not ended within {self._timeout_s:g} s; it goes on to leave")


def _exchange(connection: socket.socket, request: Mapping[str, Any], until: float | None) -> bytes:
    # Broken if it has refused us without reading: its reason is there to be read.
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(json.dumps(request).encode() + b"\n")
    answer = bytearray()
    while not answer.endswith(b"\n"):
        if until is not None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            connection.settimeout(left_s)
        part = connection.recv(65536)
        if not part:
            raise Failed("the server closed the connection without an answer: see its log")
        answer += part
        if len(answer) > ANSWER_BYTES_MAX:
            raise Failed(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
    return bytes(answer)


def checked(line: bytes) -> dict[str, Any]:
    """The answer, if it is one."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if (
        not isinstance(answer, dict)
        or not isinstance(answer.get("ok"), bool)
        or not isinstance(answer.get("message"), str)
    ):
        raise Failed(f"the answer is not a stanchion's: {line[:80]!r}")
    return answer


def shown(command: str, answer: Mapping[str, Any]) -> str:
    """The answer for people."""
    views: dict[str, Callable[[Any], str]] = {"status": _status, "workers": _workers, "dump": _stacks}
    data = answer.get("data")
    if data is None or command not in views:
        return str(answer["message"])
    try:
        return views[command](data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # Another version of stanchion, which --json can still show.
        raise Failed(f"the answer is not as expected ({error!r}); --json shows it as it is") from error


def _status(data: Mapping[str, Any]) -> str:
    retiring = ", ".join(map(str, data["retiring"]))
    rows = [
        ("server", f"stanchion {data['version']}, master {data['pid']}"),
        ("up", _duration(data["uptime_s"])),
        ("phase", str(data["phase"])),
        *_acceptor(data["acceptor_still_s"]),
        *_stopped(data["stopped"]),
        ("generation", str(data["generation"]) + (f" (retiring: {retiring})" if retiring else "")),
        ("listening at", ", ".join(data["listeners"]) or "nothing"),
        ("workers", f"{data['workers_ready']} ready of {data['workers_wanted']}"),
        ("seats", _seats(data)),
        ("signals", str(data["signals"])),
        *((kind, _counts(data[kind])) for kind in ("requests", "events")),
    ]
    return "\n".join(f"{name:12}  {printable(value)}" for name, value in rows)


def _seats(data: Mapping[str, Any]) -> str:
    longest_us = data["running_longest_us"]
    longest = "" if longest_us is None else f", the longest for {_duration(longest_us / 1e6)}"
    return f"{data['seats_busy']} busy of {data['seats_total']}{longest}"


def _acceptor(still_s: float | None) -> list[tuple[str, str]]:
    """Only one that stands still is worth a row."""
    return [] if still_s is None else [("acceptor", f"stands still for {_duration(still_s)}: clients wait")]


def _stopped(processes: Sequence[str]) -> list[tuple[str, str]]:
    return [("stopped", ", ".join(processes))] if processes else []


def _counts(counts: Mapping[str, int]) -> str:
    """The counts that are not 0."""
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "none"


_WORKER_COLUMNS = ("worker", "pid", "gen", "stage", "pss", "seats", "served", "busy", "running")


def _workers(data: Sequence[Mapping[str, Any]]) -> str:
    rows = [_WORKER_COLUMNS]
    for worker in data:
        seats = worker["seats"]
        running_us = [seat["running_us"] for seat in seats if seat["running_us"] is not None]
        rows.append(
            (
                str(worker["index"]),
                "-" if worker["pid"] is None else str(worker["pid"]),
                str(worker["generation"]),
                str(worker["stage"]) + (", stopped" if worker.get("stopped") else ""),
                "-" if worker["memory_bytes"] is None else f"{worker['memory_bytes'] / 2**20:.0f} MiB",
                f"{worker['seats_busy']} busy of {worker['seats_total']}",
                str(worker["served"]),
                _duration(worker["busy_us"] / 1e6),
                _duration(max(running_us) / 1e6) if running_us else "-",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{printable(cell):{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _stacks(data: Sequence[Mapping[str, Any]]) -> str:
    """Each once, below all the workers that have it: most of them wait at the same place."""
    whose: dict[str, list[str]] = {}
    for one in data:
        who = f"worker {one['index']}, pid {one['pid']}, generation {one['generation']}"
        whose.setdefault(one["stacks"].rstrip(), []).append(who)
    return "\n\n".join("\n".join(who) + f":\n{stacks}" for stacks, who in whose.items())


def _duration(seconds: float) -> str:
    """Two units at most: 850 ms, 12.3 s, 5 min 3 s, 2 h 0 min, 3 d 4 h."""
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, name, below, below_name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // below} {below_name}"
    return f"{whole // 60} min {whole % 60} s"
