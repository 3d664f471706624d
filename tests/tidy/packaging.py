"""Rules of the packages that pip installs: which ones, and for which Pythons. As in checks.py."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path


def requirement_files(root: Path) -> Iterator[tuple[str, list[str]]]:
    """(path, requirements with their hashes) of each file that `make requirements` reads or writes."""
    for path in sorted(path for folder in ("requirements", "bench") for path in (root / folder).glob("*.*")):
        if path.suffix in {".in", ".txt"}:
            lines = (line.split("#")[0].strip() for line in path.read_text().replace("\\\n", " ").splitlines())
            yield path.relative_to(root).as_posix(), [line for line in lines if line]


def build_requirements(root: Path) -> Iterator[tuple[str, list[str]]]:
    """(path, what builds it) of the server's distribution and of the lab's."""
    for name in ("pyproject.toml", "lab/pyproject.toml"):
        yield name, tomllib.loads((root / name).read_text())["build-system"]["requires"]


def project(requirement: str) -> str:
    """The name of what is required, of its spellings the one that counts (PEP 503)."""
    name = re.match(r"[\w.-]*", requirement)
    return re.sub(r"[-_.]+", "-", name[0] if name else "").lower()


def pins_agree(root: Path) -> list[str]:
    """Every requirement is exact, and the same one everywhere but in bench/, which has a venv of its own."""
    complaints = []
    pinned: dict[str, str] = {}
    for source, requirements in [*build_requirements(root), *requirement_files(root)]:
        for requirement in requirements:
            found = re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?==([\w.!+]+)(?: *;[^-]*)?(?: +--hash=\S+)*", requirement)
            if not found:
                complaints.append(f"{source}: '{requirement}' is not pinned")
            elif not source.startswith("bench/"):
                name = project(found[1])
                if pinned.setdefault(name, found[2]) != found[2]:
                    complaints.append(f"{source}: {name} {found[2]}, elsewhere {pinned[name]}")
    return complaints


def pins_have_hashes(root: Path) -> list[str]:
    """Each package has a hash: pip compares the file with the hash that `make requirements` wrote."""
    files = dict(requirement_files(root))
    complaints = [f"{name}: made from no .in" for name in files if f"{Path(name).with_suffix('.in')}" not in files]
    for name, requirements in files.items():
        if name.endswith(".txt"):
            bare = [line for line in requirements if not re.search(r" --hash=sha256:[0-9a-f]{64}(?!\S)", line)]
            complaints += [f"{name}: '{line}' has no hash" for line in bare]
        else:
            made = {project(line) for line in files.get(f"{Path(name).with_suffix('.txt')}", [])}
            missing = sorted({project(line) for line in requirements} - made)
            complaints += [f"{name}: {gone} is not in the .txt: make requirements" for gone in missing]
    return complaints


def python_is_old_enough(root: Path) -> list[str]:
    """The oldest Python that pip installs a package for can read its files, and the checkers check for that Python.

    The grammar only; mypy knows which modules and names the oldest Python has.
    """
    return [
        *_reads(root, "pyproject.toml", "python"),
        *_reads(root, "lab/pyproject.toml", "lab/stanchion_lab"),
    ]


def _reads(root: Path, settings: str, sources: str) -> list[str]:
    pyproject = tomllib.loads((root / settings).read_text())
    oldest = pyproject["project"]["requires-python"].removeprefix(">=")
    checked = {
        "mypy": pyproject["tool"]["mypy"]["python_version"],
        "ruff": pyproject["tool"]["ruff"]["target-version"].replace("py3", "3."),
    }
    complaints = [
        f"{settings}: {tool} checks for Python {version}, not {oldest}"
        for tool, version in checked.items()
        if version != oldest
    ]
    major, minor = map(int, oldest.split("."))
    for path in sorted((root / sources).rglob("*.py*")):
        if path.suffix in {".py", ".pyi"}:
            try:
                ast.parse(path.read_text(), feature_version=(major, minor))
            except SyntaxError as error:
                name = path.relative_to(root).as_posix()
                complaints.append(f"{name}:{error.lineno}: {error.msg} (Python {oldest} must read it)")
    return complaints
