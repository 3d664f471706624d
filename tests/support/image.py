"""A container image without a registry: the steps of a Dockerfile are taken in the Debian of the guests.

That Debian stands for the `python:…-slim` of the Dockerfile, but lacks its pip: the steps are lent this machine's. All
of it is in a mount namespace whose only process ends with the test.
"""

import json
import os
import re
import shlex
import shutil
import string
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pip

from support import guest, missing
from support.patience import PATIENCE_S

STEP_S = 6 * PATIENCE_S
PIP = """\
#!/bin/sh
PYTHONPATH=/run/pip PIP_NO_INDEX=1 PIP_ROOT_USER_ACTION=ignore exec python3 -m pip "$@"
"""
# The upper layer is in memory: an overlay, as all files of a container may be, can be none (mount(8)).
KEEP = """\
mount -t tmpfs tmpfs "$2/layers"
mkdir "$2/layers/upper" "$2/layers/work"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/layers/upper,workdir=$2/layers/work" "$2/root"
mount --rbind /dev "$2/root/dev"
mkdir -p "$2/root/run/pip/pip"
mount --bind "$3" "$2/root/run/pip/pip"
echo made
exec cat
"""


class Cave:
    """A mount namespace with a root file system of its own, over that of the guests: what is written goes beside it."""

    def __init__(self, home: Path) -> None:
        for name in ("layers", "root"):
            (home / name).mkdir(parents=True)
        self.root = home / "root"
        own = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"]
        self._keeper = subprocess.Popen(
            [*own, "sh", "-ec", KEEP, "sh", str(guest.IMAGE), str(home), str(Path(pip.__file__).parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._keeper.stdout
        assert self._keeper.stdout.readline() == b"made\n", "no file system for an image can be mounted"

    @property
    def enter(self) -> list[str]:
        """Words before a command that is to run in the namespace."""
        return ["nsenter", f"--mount=/proc/{self._keeper.pid}/ns/mnt", f"--wd={self.root}", "--"]

    def run(self, *command: str) -> str:
        done = subprocess.run([*self.enter, *command], capture_output=True, text=True, check=False, timeout=STEP_S)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def path(self, inside: str) -> Path:
        return Path("/proc", str(self._keeper.pid), "root", *self.root.parts[1:], inside.lstrip("/"))

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.communicate()


@dataclass
class Image:
    """The image after the last step; its files are in the cave."""

    environment: dict[str, str] = field(
        default_factory=lambda: {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    )
    directory: str = "/"
    user: tuple[int, int] = (0, 0)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    stop_signal: str = "SIGTERM"
    base: str = ""


def build(dockerfile: Path, context: Path, home: Path) -> tuple[Cave, Image]:
    """Take each step; one that is not known here is an error. The last stage is left, and the caller closes it."""
    stages: dict[str, Cave] = {}
    last = ""
    try:
        for word, rest in steps(dockerfile.read_text()):
            if word == "FROM":
                base, _, last = rest.partition(" AS ")
                cave = stages[last] = begin(home / f"stage-{len(stages)}")
                image = Image(base=base)
            elif word == "COPY" and (copied := re.match(r"--from=(\S+) (\S+) (\S+)$", rest)):
                shutil.copytree(stages[copied[1]].path(copied[2]), cave.path(copied[3]), symlinks=True)
            else:
                take(word, rest, context, cave, image)
        return stages.pop(last), image
    finally:
        for stage in stages.values():
            stage.close()


def begin(home: Path) -> Cave:
    """The Debian, with what Docker's image of Python has beyond it."""
    cave = Cave(home)
    shim = cave.path("/usr/local/bin/pip")
    shim.write_text(PIP)
    shim.chmod(0o755)
    # Debian's own protection of its packages, which Docker's image does not have.
    for mark in cave.path("/usr/lib").glob("python3*/EXTERNALLY-MANAGED"):
        mark.unlink()
    return cave


def steps(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, rest in (line.split(" ", 1) for line in joined)]


def take(word: str, rest: str, context: Path, cave: Cave, image: Image) -> None:
    match word:
        case "RUN":
            run(rest, context, cave, image)
        case "COPY":
            *sources, target = rest.split()
            cave.path(target).mkdir(parents=True, exist_ok=True)
            for source in sources:
                shutil.copy(context / source, cave.path(target))
        case "WORKDIR":
            image.directory = rest
        case "USER":
            user, group = rest.split(":")
            image.user = int(user), int(group)
        case "ENV":
            name, value = rest.split("=", 1)
            image.environment[name] = string.Template(value).substitute(image.environment)
        case "ENTRYPOINT":
            image.entrypoint = json.loads(rest)
        case "CMD":
            image.command = json.loads(rest)
        case "HEALTHCHECK":
            image.health = json.loads(rest.partition(" CMD ")[2])
        case "STOPSIGNAL":
            image.stop_signal = rest
        case "EXPOSE":
            assert rest.isdigit()
        case _:
            raise AssertionError(f"a step that this file does not know: {word}")


def run(command: str, context: Path, cave: Cave, image: Image) -> None:
    """Run a command by a shell in the image; `--mount=type=bind` lends it a directory of the context for this step."""
    lent = re.match(r"--mount=type=bind,source=(\S+),target=(\S+) ", command)
    before = ""
    if lent:
        command = command[lent.end() :]
        cave.path(lent[2]).mkdir()
        before = f"mount --bind {shlex.quote(str(context / lent[1]))} {cave.root}{lent[2]}; "
    words = [f"{name}={value}" for name, value in image.environment.items()]
    script = f'{before}exec chroot {cave.root} env -i "$@"'
    cave.run("unshare", "--mount", "sh", "-ec", script, "sh", *words, "sh", "-ec", command)


class Container:
    """A container that runc runs, with the settings that Docker gives one, as far as the tests can tell."""

    def __init__(
        self, cave: Cave, home: Path, process: dict[str, object], binds: Sequence[tuple[Path, str]] = ()
    ) -> None:
        self._cave = cave
        self._home = home
        (home / "bundle").mkdir(parents=True)
        (home / "bundle/config.json").write_text(json.dumps(specification(cave.root, process, binds)))
        self.name = f"stanchion-{os.getpid()}-{home.name}"
        self.output = home / "output"
        self._pid_file = home / "pid"
        with self.output.open("wb") as output:
            # TERM to runc is passed on to the first process of the container.
            self.runc = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *cave.enter, *self._command("run"), self.name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _command(self, verb: str) -> list[str]:
        where = ["--bundle", str(self._home / "bundle"), "--pid-file", str(self._pid_file)] if verb == "run" else []
        return ["runc", "--root", str(self._home / "runc"), verb, *where]

    @property
    def pid(self) -> int:
        """The first process's, as seen from here; 0 before it is there."""
        return int(self._pid_file.read_text() or 0) if self._pid_file.exists() else 0

    def log(self) -> str:
        return self.output.read_text()

    def exec(self, *command: str) -> int:
        words = [*self._cave.enter, *self._command("exec"), self.name, *command]
        return subprocess.run(words, capture_output=True, check=False, timeout=STEP_S).returncode

    def kill(self, signal: str) -> None:
        self._cave.run(*self._command("kill"), self.name, signal)

    def close(self) -> None:
        if self.runc.poll() is None:
            self.kill("KILL")
        self.runc.wait(PATIENCE_S)


DOCKERS_CAPABILITIES = [
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID"),
    *(
        "CAP_SETUID",
        "CAP_SETFCAP",
        "CAP_SETPCAP",
        "CAP_NET_BIND_SERVICE",
        "CAP_SYS_CHROOT",
        "CAP_KILL",
        "CAP_AUDIT_WRITE",
    ),
]
"""The capabilities that Docker leaves; a process of another user than root has them in its bounding set alone."""


def specification(root: Path, process: dict[str, object], binds: Sequence[tuple[Path, str]]) -> dict[str, object]:
    """The file of `runc spec` as Docker changes it: a read-only root, a tmpfs on /tmp, a network of its own."""
    plain = ["nosuid", "noexec", "nodev"]
    mounts: list[dict[str, object]] = [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": plain},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {
            "destination": "/dev/pts",
            "type": "devpts",
            "source": "devpts",
            "options": ["nosuid", "noexec", "newinstance"],
        },
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*plain, "mode=1777", "size=65536k"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*plain, "ro"]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": [*plain, "mode=1777", "size=64m"]},
        *(
            {"destination": inside, "type": "bind", "source": str(here), "options": ["bind", "rw"]}
            for here, inside in binds
        ),
    ]
    proc = ["acpi", "asound", "kcore", "keys", "latency_stats", "timer_list", "timer_stats", "sched_debug", "scsi"]
    return {
        "ociVersion": "1.0.2",
        "process": {"terminal": False, "rlimits": [], "noNewPrivileges": False, **process},
        "root": {"path": str(root), "readonly": True},
        "hostname": "shop",
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "resources": {"devices": [{"allow": False, "access": "rwm"}], "pids": {"limit": 100}},
            "maskedPaths": [*(f"/proc/{name}" for name in proc), "/sys/firmware"],
            "readonlyPaths": [f"/proc/{name}" for name in ("bus", "fs", "irq", "sys", "sysrq-trigger")],
        },
    }


def not_here() -> str:
    """Why no image can be made and run, or "" if one can."""
    if why := guest.not_here():
        return why
    absent = [name for name in ("runc", "unshare", "nsenter") if not shutil.which(name)]
    return missing.allowed(f"{absent[0]} is not installed" if absent else "")


WHEELS = Path(__file__).parents[2] / "target" / "wheels"


def wheel() -> Path:
    """The wheel that is under test, of this interpreter."""
    [found] = WHEELS.glob(f"stanchion-*-cp{sys.version_info.major}{sys.version_info.minor}-*.whl")
    return found
