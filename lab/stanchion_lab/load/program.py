"""A load tool that is a program: asked only for what it can do, run for a bounded time, and heard to the end."""

import os
import random
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stanchion_lab import programs
from stanchion_lab.load.offered import Failed, Progress, Target
from stanchion_lab.load.schedule import SEED_OF_PATHS
from stanchion_lab.scenario import Load, lasts_s

# Between two looks whether it has ended.
LOOK_EACH_S = 0.05
# A tool may take so long to start, to end and to write its report, beside the load itself.
OVERHEAD_S = 10.0
# From being asked to end until it is ended.
GRACE_S = 3.0
WORDS_BYTES_MAX = 1 << 15
# The length of a list of addresses in which each path has its share.
LINES_OF_SHARES = 100


@dataclass(frozen=True, kw_only=True)
class Can:
    """The loads that a tool can offer. The lab refuses any other load before it runs, and approximates none."""

    rate: bool = False
    poisson: bool = False
    clients: bool = False
    unix: bool = False
    paths: bool = False
    kept_rate: bool = False
    """A rate over kept connections."""

    def check(self, tool: str, load: Load, target: Target) -> None:
        wanted = {
            "offer a rate: it has clients that ask again (`connections`)": load.rate_per_s > 0 and not self.rate,
            "offer poisson arrivals": load.arrivals == "poisson" and load.rate_per_s > 0 and not self.poisson,
            "be a number of clients: it offers a rate (`rate_per_s`)": load.rate_per_s <= 0 and not self.clients,
            "ask over a unix socket": bool(target.unix_path) and not self.unix,
            "ask for several paths": len(load.paths) > 1 and not self.paths,
            "offer a rate over kept connections": load.rate_per_s > 0 and load.keep_alive and not self.kept_rate,
            "ask several hosts": bool(target.more),
            "send POST": load.method == "POST",
            "number its requests": load.numbered,
            "stay connected when its patience ends (`hang_up = false`)": not load.hang_up,
        }
        for what, is_wanted in wanted.items():
            if is_wanted:
                raise Failed(f'{tool} cannot {what}; `tools = ["own"]` can')


@dataclass(frozen=True)
class Ran:
    command: str
    stdout: Path
    stderr: Path
    status: int
    stopped: bool
    """It did not end by itself in time."""

    @property
    def gave_up(self) -> bool:
        """Whether its report is not about the whole load."""
        return self.stopped or self.status != 0

    @staticmethod
    def lines(written: Path) -> Iterator[str]:
        """The lines of `stdout` or `stderr`, which may be long."""
        with written.open(encoding="latin-1") as file:
            yield from file

    def words(self) -> str:
        """All that it said, or the end of it."""
        return f"{_tail(self.stdout)}\n{_tail(self.stderr)}".strip()

    def failed(self, why: str) -> Failed:
        last = self.words().splitlines()[-3:]
        return Failed(f"{why}: {' / '.join(line.strip() for line in last)} (`{self.command}`)")


def run(argv: list[str], load: Load, directory: Path, progress: Progress, **environment: str) -> Ran:
    """Failed, if it cannot be started. Past its time it is asked to end, and then ended."""
    tool = argv[0]
    stdout, stderr = directory / f"{tool}.out", directory / f"{tool}.err"
    began_s = time.monotonic()
    ends_s = began_s + lasts_s(load) + load.patience_s + OVERHEAD_S
    stopped = False
    with stdout.open("wb") as out, stderr.open("wb") as err:
        try:
            # A session of its own: its children end with it, and Ctrl-C is for the lab alone.
            process = subprocess.Popen(
                [programs.find(tool) or tool, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=directory,
                env={**os.environ, "LC_ALL": "C", **environment},
                start_new_session=True,
            )
        except OSError as error:
            raise Failed(f"{tool}: {error.strerror}; `stanchion-lab doctor` names its package") from error
        try:
            while process.poll() is None:
                now_s = time.monotonic()
                if now_s > ends_s:
                    stopped = True
                    os.killpg(process.pid, signal.SIGINT)
                    process.wait(GRACE_S)
                    break
                progress(min(0.99, (now_s - began_s) / load.for_s) if load.for_s else 0.0)
                time.sleep(LOOK_EACH_S)
        except subprocess.TimeoutExpired:
            pass  # ended below
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    progress(1.0)
    return Ran(shlex.join(argv), stdout, stderr, process.returncode, stopped)


def addresses(load: Load, target: Target) -> list[str]:
    """A list with each path as often as its share of a hundred, and at least once, shuffled: for a tool that takes them
    in order, or at random."""
    whole = sum(load.paths.values())
    lines = {path: max(1, round(LINES_OF_SHARES * share / whole)) for path, share in load.paths.items()}
    urls = [target.url(path) for path, count in lines.items() for _ in range(count)]
    random.Random(SEED_OF_PATHS).shuffle(urls)
    return urls


def only_path(load: Load) -> str:
    (path,) = load.paths
    return path


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - WORDS_BYTES_MAX))
        return file.read().decode(errors="replace")
