"""How long a server may take to answer a request, as far as it can be known how it was started."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from stanchion.doctor import asked, processes
from stanchion.doctor.facts import Owner
from stanchion.doctor.settings import Settings

GUNICORN_TIMEOUT_S = 30.0
"""gunicorn's default of `timeout`."""


@dataclass(frozen=True)
class Limit:
    """The limit of a part of the time that a request takes."""

    verb: str
    """wait or run."""
    seconds: float
    """0 is no limit."""
    known: str
    is_assumed: bool = False


@dataclass(frozen=True)
class Patience:
    """One server, with a limit on each part of the time."""

    who: str
    limits: tuple[Limit, ...]
    is_ours: bool = False

    @property
    def seconds(self) -> float | None:
        """None if one of the parts may take for ever."""
        each = [one.seconds for one in self.limits]
        return sum(each) if all(each) else None

    @property
    def certain_seconds(self) -> float:
        return sum(one.seconds for one in self.limits if not one.is_assumed)


def of_stanchion(who: str, known: Settings) -> Patience:
    """A stanchion's patience, by its settings."""

    def limit(verb: str, name: str) -> Limit:
        return Limit(verb, float(known.values[name]), f"{name}; {known.sources[name]}", name in known.assumed)

    return Patience(who, (limit("wait", "queue_timeout"), limit("run", "timeout")), is_ours=True)


def of_another(owner: Owner, proc: Path = Path("/proc")) -> Patience | None:
    """The patience of a gunicorn or a uWSGI, by its command line. None if that sets no bound."""
    match asked.server(owner):
        case "gunicorn":
            limit = _gunicorn(owner, proc / str(owner.pid))
        case "uwsgi":
            limit = _uwsgi(owner)
        case _:
            return None
    return Patience(f"{asked.name(owner)} ({owner.pid}) would", (limit,)) if limit else None


def _gunicorn(owner: Owner, home: Path) -> Limit | None:
    environ = (processes.read(home / "environ") or "").split("\0")
    variable = next((text for text in environ if text.startswith(_VARIABLE)), _VARIABLE)
    # The last one counts, and the command line comes last (gunicorn's settings, "Configuration Overview").
    words = f"{variable.removeprefix(_VARIABLE)} {owner.command}"
    # A sync worker is ended with a request that takes longer; others say that they live while it runs (its `timeout`).
    if (_last(words, "--worker-class", "-k") or "sync") not in _SYNC or (_last(words, "--threads") or "1") != "1":
        return None
    given = _number(_last(words, "--timeout", "-t"))
    if given is not None:
        return Limit("run", given, f"timeout; the command line of process {owner.pid}")
    # Under `setproctitle` its title stands in the place of its command line.
    hides = owner.command.startswith("gunicorn: ") or not environ[0]
    has_file = _last(words, "--config", "-c") is not None or os.path.exists(home / "cwd/gunicorn.conf.py")
    why = "its command line is out of sight" if hides else "its config file may say otherwise"
    assumed = f", assumed: {why}" if hides or has_file else ""
    return Limit("run", GUNICORN_TIMEOUT_S, f"timeout; gunicorn's default{assumed}", is_assumed=bool(assumed))


_VARIABLE = "GUNICORN_CMD_ARGS="
_SYNC = ("sync", "gunicorn.workers.sync.SyncWorker")


def _uwsgi(owner: Owner) -> Limit | None:
    given = _number(_last(owner.command, "--harakiri", "-t"))
    return None if given is None else Limit("run", given, f"harakiri; the command line of process {owner.pid}")


def _last(words: str, *flags: str) -> str | None:
    """The value of a flag, given for the last time: `--flag VALUE`, `--flag=VALUE`, `-f VALUE` or `-fVALUE`."""
    forms = "|".join(f"{flag}[= ]" if flag.startswith("--") else f"{flag} ?" for flag in flags)
    found = re.findall(rf"(?:^|\s)(?:{forms})(\S+)", words)
    return found[-1] if found else None


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r"\d+(\.\d+)?", text) else None
