"""Where the private key is: in the acceptor, and nowhere else."""

import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from support import processes
from support.patience import PATIENCE_S
from support.server import Serve, Server
from support.tls import Authority, Pair, connect

pytestmark = [
    pytest.mark.own("others have it in each worker"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into them"),
]

MIB = 1 << 20
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of the key's group (FIPS 186-5)."""


def test_only_the_acceptor_has_the_key_in_memory(serve: Serve, authority: Authority, pair: Pair) -> None:
    server = serve("hello:app", *pair.arguments(), "--workers", "2")
    assert_only_the_acceptor_has(pair, server, authority)
    reload(server)
    assert_only_the_acceptor_has(pair, server, authority)


def assert_only_the_acceptor_has(pair: Pair, server: Server, authority: Authority) -> None:
    # It has signed with it by then, and workers have run the app.
    with connect(server.address, authority.context()) as wire:
        assert wire.get("/").body == b"hello\n"
    shapes = shapes_of(pair)
    acceptor = server.acceptor().pid
    # Master, acceptor, template and workers.
    everybody = server.processes()
    assert len(everybody) == 5
    having = {one.pid: shapes_in(one, shapes) for one in everybody}
    # ring's own, which shows that a search finds what is there.
    assert "for arithmetic" in having.pop(acceptor)
    assert not any(having.values()), having


def shapes_of(pair: Pair) -> dict[str, bytes]:
    """The private number of a key, in all forms in which a process could have it."""
    command = ["openssl", "pkey", "-in", str(pair.keyfile), "-noout", "-text"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    digits = re.search(r"priv:\n((?:\s+[0-9a-f:]+\n)+)", text)
    assert digits
    number = int(re.sub(r"[\s:]", "", digits[1]), 16)
    lines = pair.keyfile.read_bytes().splitlines()[1:-1]
    return {
        "as DER has it": number.to_bytes(32, "big"),
        "the other way round": number.to_bytes(32, "little"),
        # Montgomery's, by 2 to the power of 256.
        "for arithmetic": (number * (1 << 256) % P256_ORDER).to_bytes(32, "little"),
        # The first line has no more than the kind of key.
        "as a file": lines[1],
    }


def shapes_in(process: psutil.Process, shapes: dict[str, bytes]) -> set[str]:
    """The shapes that are somewhere in the memory that the process can read."""
    found = set()
    with Path(f"/proc/{process.pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            begin, end = (int(part, 16) for part in span.split("-"))
            # The exchange is larger, and to read all of it would make it of memory.
            if not rights.startswith("r") or "[vvar" in line or end - begin > 256 * MIB:
                continue
            memory.seek(begin)
            try:
                content = memory.read(end - begin)
            except OSError:
                continue
            found |= {name for name, shape in shapes.items() if shape in content}
    return found


def test_only_master_and_acceptor_have_descriptors_of_what_is_secret(serve: Serve, pair: Pair) -> None:
    server = serve("hello:app", *pair.arguments(), "--workers", "2")
    for generation in (1, 2):
        acceptor = server.acceptor().pid
        holders = {
            what: {one.pid for one in server.processes() if any(what in link for link in links_of(one.pid))}
            for what in ("stanchion-copy", "stanchion-tickets")
        }
        assert holders == {"stanchion-copy": {server.pid}, "stanchion-tickets": {server.pid, acceptor}}
        assert "keyfile" not in Path(f"/proc/{acceptor}/environ").read_text()
        if generation == 1:
            reload(server)


def reload(server: Server) -> None:
    """Reload, and wait until no process of the generation before is there."""
    before = {one.pid for one in server.processes()} - {server.pid}
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation 2 serves")
    for pid in before:
        processes.gone(pid)


def links_of(pid: int) -> list[str]:
    links = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(str(path.readlink()))
        except FileNotFoundError:
            continue
    return links
