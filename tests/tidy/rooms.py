"""The rooms of a crate, which are its files and folders: those beside each other make no circle."""

import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tidy.sources import rust_code, rust_sources, test_modules, without_tests

CIRCLES: dict[str, str] = {
    "crates/stanchion-acceptor/src/doors": "a door has a thread that accepts, which gives the door what it accepted",
}
"""A folder whose rooms make a circle -> what still makes it."""

Room = tuple[str, ...]
"""The path of a module in its crate: its root is `()`."""


def rooms_make_no_circle(root: Path) -> list[str]:
    """No room needs one beside it that needs it too, directly or through others: so they can be read in an order."""
    complaints = []
    found = set()
    for crate, rooms in sorted(crates(root).items()):
        for above, arrows in sorted(arrows_by_folder(rooms).items()):
            folder = "/".join(["crates", crate, "src", *above])
            if circle := one_circle(arrows):
                found.add(folder)
                if folder not in CIRCLES:
                    complaints.append(f"{folder}: {' needs '.join(circle)}")
    return complaints + [f"{folder}: needs no exception" for folder in CIRCLES if folder not in found]


def crates(root: Path) -> dict[str, dict[Room, str]]:
    """The code of each room that is a file, without its tests, by crate."""
    found: dict[str, dict[Room, str]] = defaultdict(dict)
    tests: dict[str, set[Room]] = defaultdict(set)
    for name, crate, text in rust_sources(root):
        _, _, top, *inside = name.removesuffix(".rs").split("/")
        if top == "src":
            room = tuple(inside[:-1] if inside[-1] in {"lib", "main", "mod"} else inside)
            found[crate][room] = flat(rust_code(without_tests(text)))
            tests[crate].update((*room, test) for test in test_modules(text))
    return {
        crate: {room: code for room, code in rooms.items() if not is_in(room, tests[crate])}
        for crate, rooms in found.items()
    }


def is_in(room: Room, folders: set[Room]) -> bool:
    return any(room[:depth] in folders for depth in range(1, len(room) + 1))


def flat(code: str) -> str:
    """The code with no whitespace in its paths, and no other names for what it imports."""
    return re.sub(r"\s*(::|[{},;])\s*", r"\1", re.sub(r"\s+as\s+\w+(?=\s*[,;}])", "", code))


def arrows_by_folder(rooms: dict[Room, str]) -> dict[Room, dict[str, set[str]]]:
    """For each folder: the rooms in it -> those beside them that they name."""
    found: dict[Room, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    shown = reexports(rooms)
    for room, code in rooms.items():
        for path in named(code):
            other = resolved(room, path, rooms, shown)
            common = 0
            while room[common : common + 1] == other[common : common + 1] != ():
                common += 1
            if common < min(len(room), len(other)):
                found[room[:common]][room[common]].add(other[common])
    return found


def named(code: str) -> Iterator[list[str]]:
    """The paths that a file imports, and those that it spells where it uses them."""
    for tree in re.findall(r"\buse ([^;]+);", code):
        yield from spread(tree)
    rest = re.sub(r"\buse [^;]+;", "", code)
    yield from (path.split("::") for path in re.findall(r"(?<![\w:])(?:crate|super|self)(?:::\w+)+", rest))


def spread(tree: str) -> list[list[str]]:
    """Each path of an import: `a::b` and `a::c` for `a::{b,c}`."""
    while group := re.search(r"([\w:]*)\{([^{}]*)\}", tree):
        each = ",".join(group[1] + item for item in group[2].split(",") if item)
        tree = tree[: group.start()] + each + tree[group.end() :]
    return [[name for name in path.split("::") if name] for path in tree.split(",") if path]


def reexports(rooms: dict[Room, str]) -> dict[tuple[Room, str], list[str]]:
    """(room, name) -> the path behind a name that the room shows of another."""
    return {
        (room, path[-1]): path
        for room, code in rooms.items()
        for tree in re.findall(r"\bpub(?:\([^)]*\))? use ([^;]+);", code)
        for path in spread(tree)
        if len(path) > 1
    }


def resolved(room: Room, path: list[str], rooms: dict[Room, str], shown: dict[tuple[Room, str], list[str]]) -> Room:
    """The room of the item that has this path in `room`; `room` itself if the item is of another crate."""
    at = () if path[0] == "crate" else room
    for name in path:
        if name == "super":
            at = at[:-1]
        elif (*at, name) in rooms:
            at = (*at, name)
        elif (at, name) in shown:
            return resolved(at, shown[at, name], rooms, shown)
        elif name not in {"crate", "self"}:
            break
    return at


def one_circle(arrows: dict[str, set[str]]) -> list[str]:
    """Rooms of which each names the next, and the last is the first; empty if there are none."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []
