"""The list of what is in the wheel is whole, exact, and the same wherever it is made."""

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def written() -> str:
    return run("scripts/sbom")


@pytest.fixture(scope="module")
def crates(written: str) -> dict[str, Any]:
    return {component["name"]: component for component in json.loads(written)["components"]}


def run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_it_lists_what_is_linked_and_nothing_else(crates: dict[str, Any]) -> None:
    linked = run(
        *("cargo", "tree", "--locked", "--package", "stanchion-py", "--edges", "normal,no-proc-macro"),
        *("--prefix", "none", "--format", "{p}"),
    )
    names = {line.split()[0] for line in linked.splitlines()}
    assert set(crates) == {*names, "rust-std"}
    assert {"tokio", "h2", "pyo3"} <= set(crates)
    # In the lock file, and not in the wheel: run in the compiler, in a test, in the build, on another system.
    assert not {"syn", "serde_derive", "loom", "proptest", "target-lexicon", "windows-sys", "cc"} & set(crates)


def test_it_lists_what_the_target_needs_that_is_named(crates: dict[str, Any]) -> None:
    elsewhere = {one["name"] for one in json.loads(run("scripts/sbom", "x86_64-pc-windows-msvc"))["components"]}
    assert [name for name in elsewhere if name.startswith("windows-")]
    assert not [name for name in crates if name.startswith("windows-")]


def test_each_crate_has_the_hash_that_the_lock_file_has(crates: dict[str, Any]) -> None:
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(crate["name"], crate["version"]): crate["checksum"] for crate in lock if "checksum" in crate}
    for name, crate in crates.items():
        if name == "rust-std" or name.startswith("stanchion-"):
            assert "hashes" not in crate  # of no registry
        else:
            assert crate["hashes"] == [{"alg": "SHA-256", "content": checksums[name, crate["version"]]}]


def test_each_crate_says_where_it_is_from_and_what_it_is_under(crates: dict[str, Any]) -> None:
    for name, crate in crates.items():
        registry = "generic" if name == "rust-std" else "cargo"
        assert crate["purl"] == crate["bom-ref"] == f"pkg:{registry}/{name}@{crate['version']}"
        [licence] = crate["licenses"]
        words = licence["expression"].replace("(", "").replace(")", "").split(" ")
        assert {"MIT", "Apache-2.0", "BSD-3-Clause", "ISC", "Zlib"} & set(words)


def test_each_crate_is_needed_by_another(written: str) -> None:
    needs = {one["ref"]: one["dependsOn"] for one in json.loads(written)["dependencies"]}
    reached, last = set(), {json.loads(written)["metadata"]["component"]["bom-ref"]}
    while last:
        reached |= last
        last = {need for ref in last for need in needs.get(ref, [])} - reached
    assert reached == {component["bom-ref"] for component in json.loads(written)["components"]} | {
        json.loads(written)["metadata"]["component"]["bom-ref"]
    }


def test_it_says_nothing_of_where_it_was_made(written: str) -> None:
    assert str(ROOT) not in written and "file:" not in written
    assert written == run("scripts/sbom")
