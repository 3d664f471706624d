"""Container images without a Docker: this Python, the stanchion that is installed here and an app, in a tar."""

import hashlib
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from fleet_k8s.programs import PAUSE

APP = Path(__file__).parent / "app"

SHOP, PAUSED = "localhost/shop:1", "localhost/pause:1"
PREFIX = "usr/local"
PYTHON = f"/{PREFIX}/bin/python3"

USERS = "root:x:0:0::/:/bin/false\napp:x:10001:10001::/tmp:/bin/false\n"
NOT_NEEDED = ("test", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "site-packages")
"""Packages of the standard library that the image lacks: two thirds of it."""


def shop(tar: Path) -> None:
    """The image of the app: a Python of its own, below /usr/local as in those that people begin with."""
    home = f"{PREFIX}/lib/python{sysconfig.get_python_version()}"
    library, package = Path(sysconfig.get_path("stdlib")), Path(str(find_spec("stanchion").origin)).parent  # type: ignore[union-attr]
    interpreter = Path(sys.executable).resolve()
    files = {PYTHON.lstrip("/"): interpreter}
    files |= {f"{home}/{path.relative_to(library)}": path for path in _files(library)}
    files |= {f"{home}/site-packages/stanchion/{path.relative_to(package)}": path for path in _files(package)}
    files |= {f"app/{path.name}": path for path in APP.glob("*.py")}
    files |= {name.lstrip("/"): Path(name) for name in _libraries(files.values())}
    content = {name: path.read_bytes() for name, path in files.items()}
    content |= {"etc/passwd": USERS.encode(), "etc/group": b"root:x:0:\napp:x:10001:\n"}
    _write(tar, SHOP, content)


def pause(tar: Path) -> None:
    _write(tar, PAUSED, {"pause": PAUSE.read_bytes()}, ["/pause"])


def _files(folder: Path) -> Iterator[Path]:
    """Files of a package or the standard library with their compiled forms: the root of a pod is read-only."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.name not in NOT_NEEDED and not path.name.startswith("config-"):
                yield from _files(path)
        elif path.suffix != ".a":
            yield path


def _libraries(files: Iterable[Path]) -> set[str]:
    """Shared libraries that programs and extension modules need, and the loader, by the paths that ldd(1) shows."""
    compiled = [str(path) for path in files if path.suffix == ".so" or path == Path(sys.executable).resolve()]
    said = subprocess.run(["ldd", *compiled], capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"(/\S+) \(0x", said))


def _write(tar: Path, name: str, files: dict[str, bytes], command: list[str] | None = None) -> None:
    """The format of `docker save`: a manifest, a configuration and one layer."""
    layer = _layer(files)
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command or [], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "tests/fleet_k8s"}],
    }
    described = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(described).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    parts = {f"{digest}/layer.tar": layer, config_name: described, "manifest.json": json.dumps(manifest).encode()}
    with tarfile.open(tar, "w") as out:
        for part, data in parts.items():
            _add(out, part, data)


def _layer(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
        for folder in sorted(folders | {"proc", "sys", "dev", "run", "tmp"}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            out.addfile(entry)
        for name, data in files.items():
            _add(out, name, data)
    return buffer.getvalue()


def _add(out: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size = 0o755, len(data)
    out.addfile(entry, io.BytesIO(data))
