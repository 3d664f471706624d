"""The name of a network namespace: its container, its service, its name for `ip netns`, or a process in it."""

from pathlib import Path

import pytest

from stanchion.doctor import places

ID = "0123456789abcdef" * 4


def named(home: Path, cgroup: str, environ: str = "", netns: Path = Path("/nowhere")) -> str:
    """The name by process 7 of a made-up /proc."""
    process = home / "7"
    process.mkdir(exist_ok=True)
    (process / "cgroup").write_text(cgroup)
    (process / "environ").write_text(environ)
    (process / "comm").write_text("shop\n")
    return places.of_process(7, f"net:[{home.stat().st_ino}]", home, netns)


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("0::/system.slice/shop.service\n", "shop.service"),
        ("1:name=systemd:/system.slice/shop.service\n0::/\n", "shop.service"),
        ("0::/system.slice/shop.service/worker\n", "shop.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/shop.service\n", "shop.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope\n", "that of shop (7)"),
        ("0::/user.slice/user-1000.slice/session-1.scope\n", "that of shop (7)"),
        ("0::/\n", "that of shop (7)"),
        ("", "that of shop (7)"),
        (f"0::/system.slice/docker-{ID}.scope\n", "container 0123456789ab"),
        (f"12:pids:/docker/{ID}\n0::/\n", "container 0123456789ab"),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n", "container 0123456789ab"),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", "container 0123456789ab"),
        # One with a systemd of its own.
        (f"0::/system.slice/docker-{ID}.scope/system.slice/shop.service\n", "container 0123456789ab"),
        ("0::/lxc.payload.shop/init.scope\n", "container shop"),
        ("0::/machine.slice/machine-my\\x2dshop.scope/payload/system.slice/a.service\n", "machine my-shop"),
        (
            "0::/machine.slice/systemd-nspawn@shop.service/payload/system.slice/a.service\n",
            "systemd-nspawn@shop.service",
        ),
    ],
)
def test_a_namespace_is_called_by_who_lives_there(tmp_path: Path, cgroup: str, expected: str) -> None:
    assert named(tmp_path, cgroup) == expected


def test_a_container_is_called_by_its_hostname_too(tmp_path: Path) -> None:
    cgroup = f"0::/kubepods/pod1/{ID}\n"
    assert named(tmp_path, cgroup, "A=b\0HOSTNAME=shop-7f9\0") == "container 0123456789ab (shop-7f9)"
    assert named(tmp_path, cgroup, "HOSTNAME=0123456789ab\0") == "container 0123456789ab"
    assert named(tmp_path, cgroup, f"HOSTNAME={'a' * 99}\0") == f"container 0123456789ab ({'a' * 64})"


def test_a_name_of_ip_netns_comes_before_that_of_a_process(tmp_path: Path) -> None:
    netns = tmp_path / "netns"
    netns.mkdir()
    (netns / "blue").symlink_to(tmp_path)
    assert named(tmp_path, "0::/\n", netns=netns) == "blue of ip netns"
    assert named(tmp_path, "0::/a.service\n", netns=netns) == "a.service"
    (netns / "blue").unlink()
    assert named(tmp_path, "0::/\n", netns=netns) == "that of shop (7)"
