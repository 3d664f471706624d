"""The first page of a crate says what the crate is for and what it may not do, and the code keeps to that."""

import re
from collections.abc import Iterator
from pathlib import Path

from tidy.shapes import product_code

IO = (
    r"\bstd::(?:fs|process|env|os)\b|\bio::std(?:in|out|err)\b|\be?print(?:ln)?!|\b(?:rustix|libc|socket2)::"
    r"|\b(?:Tcp(?:Stream|Listener)|UdpSocket|Unix(?:Stream|Listener|Datagram))\b"
)
CLOCK = r"\b(?:Instant|SystemTime|UNIX_EPOCH|LocalTime::now)\b|\b(?:monotonic|wall)_\w+\(|\bclock_gettime\b"
THREADS = r"\bthread::"
UNSAFE = r"\bunsafe\b"
FORK = r"\bfork\w*\(|\bexecve?\("
LOG = r"\b(?:error|warn|info|debug)!|\bstanchion_log\b"
SOCKETS = r"\b(?:Tcp|Unix)Stream\b|\bstanchion_sys::(?:outgoing|incoming)\b"
LISTENERS = r"\b(?:Tcp|Unix)?Listener\b|\bstanchion_sys::listener\b"
EPOLL = r"\b(?:epoll\w*|Poller)\b"
HTTP = r"\bstanchion_http\b|[Hh]ttp"
PYTHON = r"\bpyo3\b|[Pp]ython"

PURE = {"I/O": IO, "clock": CLOCK, "threads": THREADS, "unsafe": UNSAFE}
ACCEPTOR = {"fork": FORK, "unsafe": UNSAFE}

MAY_NOT: dict[str, dict[str, str]] = {
    "stanchion-line": PURE,
    "stanchion-arrivals": PURE,
    "stanchion-plan": PURE,
    "stanchion-http": PURE,
    "stanchion-websocket": PURE,
    "stanchion-tls": PURE,
    "stanchion-compression": PURE,
    "stanchion-record": PURE,
    "stanchion-settings": {**PURE, "log": LOG},
    "stanchion-exchange": {"HTTP": HTTP, "Python": PYTHON, "log": LOG},
    "stanchion-sys": {"HTTP": HTTP, "Python": PYTHON, "log": LOG},
    "stanchion-log": {"fork": FORK, "listeners": LISTENERS, "unsafe": UNSAFE},
    "stanchion-generation": {"fork": FORK, "threads": THREADS, "unsafe": UNSAFE},
    "stanchion-dispatch": {"sockets of clients": SOCKETS, "clock": CLOCK, **ACCEPTOR},
    "stanchion-observers": {
        "the line": r"\bDispatch\b|\bstanchion_line\b",
        "the exchange": r"\bstanchion_exchange\b",
        **ACCEPTOR,
    },
    "stanchion-requests": {"sockets of clients": SOCKETS, "frames": r"\bh2::|\bFrame\w*\b", "epoll": EPOLL, **ACCEPTOR},
    "stanchion-connections": {"listeners": LISTENERS, "threads": THREADS, **ACCEPTOR},
    "stanchion-acceptor": {"Python": PYTHON, "heads of clients": r"\bHeadReader\b|\bh2::", **ACCEPTOR},
    "stanchion-master": PURE,
    "stanchion-server": {"HTTP": HTTP, "Python": PYTHON, "sockets of clients": SOCKETS, "unsafe": UNSAFE},
    "stanchion-py": {
        "sockets": SOCKETS,
        "listeners": LISTENERS,
        "epoll": EPOLL,
        "threads": r"\bthread::(?:spawn|Builder)",
    },
}
"""For each crate: words of the paragraph of its first page that says what it may not do -> code that would do it.

Which crates it may name is another rule."""


def first_pages_are_kept(root: Path) -> list[str]:
    return [*pages_lack(root), *code_breaks(root)]


def pages_lack(root: Path) -> Iterator[str]:
    for crate, forbidden in MAY_NOT.items():
        library = root / "crates" / crate / "src/lib.rs"
        paragraphs = first_page(library.read_text()).split("\n\n") if library.exists() else []
        if not paragraphs or "may not" in paragraphs[0].split(".")[0]:
            yield f"crates/{crate}/src/lib.rs: does not begin with what the crate is for"
        denial = " ".join(paragraph.replace("\n", " ") for paragraph in paragraphs if "may not" in paragraph)
        yield from (
            f"crates/{crate}/src/lib.rs: does not say: may not, {what}" for what in forbidden if what not in denial
        )


def first_page(text: str) -> str:
    """The text of `//!` at the top of a file."""
    lines = re.search(r"^(?://!.*\n)+", text, re.MULTILINE)
    return re.sub(r"^//! ?", "", lines[0], flags=re.MULTILINE).strip() if lines else ""


def code_breaks(root: Path) -> Iterator[str]:
    for name, crate, code in product_code(root):
        for what, pattern in MAY_NOT.get(crate, {}).items():
            if found := re.search(pattern, code):
                line = code.count("\n", 0, found.start()) + 1
                yield f"{name}:{line}: {crate} may not: {what}"
