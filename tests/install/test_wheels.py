"""The contents of each wheel that `make wheels` has written, whatever machine it is for (`make test-install`)."""

import re
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from install.conftest import ROOT

MACHINES = {"x86_64": 62, "aarch64": 183}
"""The machine's name in a wheel -> its number in ELF (elf(5), e_machine)."""
GLIBC_MAX = (2, 17)
NAME = re.compile(
    r"stanchion-(?P<version>[\d.]+)-(?P<python>cp3\d+)-(?P<abi>cp3\d+t?)"
    r"-manylinux2014_(?P<machine>\w+)\.manylinux_2_17_(?P=machine)\.whl"
)

pytestmark = pytest.mark.own("its packages")


def parts(wheel: Path) -> dict[str, str]:
    found = NAME.fullmatch(wheel.name)
    assert found, wheel.name
    return found.groupdict()


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_each_python_has_one_for_each_machine(any_wheel: Path) -> None:
    others = {parts(other)["machine"] for other in any_wheel.parent.glob(any_wheel.name.split("-many")[0] + "-*.whl")}
    assert others == set(MACHINES)


def test_it_says_what_it_is(any_wheel: Path) -> None:
    files = contents(any_wheel)
    version = parts(any_wheel)["version"]
    info = f"stanchion-{version}.dist-info"
    said = message_from_string(files[f"{info}/METADATA"].decode())
    assert (said["Name"], said["Version"], said["Requires-Python"]) == ("stanchion", version, ">=3.10")
    assert said["License-Expression"] == "MIT"
    assert files[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert all("extra ==" in needed for needed in said.get_all("Requires-Dist", [])), "serving needs nothing"
    assert f"Programming Language :: Python :: 3.{parts(any_wheel)['python'][3:]}" in said.get_all("Classifier", [])
    assert files[f"{info}/entry_points.txt"].decode().splitlines() == [
        "[console_scripts]",
        "stanchion=stanchion.cli:main",
    ]
    assert [name for name in files if name.endswith(".cyclonedx.json")]
    assert {"stanchion/py.typed", "stanchion/_stanchion.pyi"} <= files.keys()
    assert not [name for name in files if name.startswith("stanchion/lab")], "the lab is a distribution of its own"


def test_its_module_is_for_that_machine_and_an_old_glibc(any_wheel: Path) -> None:
    files = contents(any_wheel)
    [module] = [content for name, content in files.items() if name.endswith(".so")]
    assert int.from_bytes(module[18:20], "little") == MACHINES[parts(any_wheel)["machine"]]
    wanted = {(int(major), int(minor)) for major, minor in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", module)}
    assert wanted, "it is linked with some glibc"
    assert max(wanted) <= GLIBC_MAX


def test_it_tells_nothing_of_the_machine_that_made_it(any_wheel: Path) -> None:
    traces = [f"{ROOT}".encode(), f"{Path.home()}/".encode()]
    told = {name: [trace for trace in traces if trace in content] for name, content in contents(any_wheel).items()}
    assert {name: found for name, found in told.items() if found} == {}
