"""The settings of a program that makes a server itself, without one."""

from pathlib import Path

import pytest

from stanchion.app.base import Application, BaseApplication

FILE = """
workerz = 3
logconfig_dict = {"version": 1, "filters": {"mine": {"()": list}}}

def post_fork(server, worker):
    pass
"""


def test_a_config_file_that_a_program_reads_has_its_objects_hooks_and_warnings(tmp_path: Path) -> None:
    path = tmp_path / "shop.conf.py"
    path.write_text(FILE)

    class Shop(Application):
        def load_config(self) -> None:
            self.load_config_from_file(str(path))

    effective = Shop().cfg.effective()
    assert effective.objects["logconfig_dict"]["filters"] == {"mine": {"()": list}}
    assert "post_fork" in effective.hooks
    assert any("workerz is no setting" in warning for warning in effective.warnings)


def test_gunicorns_names_of_settings_are_taken() -> None:
    class Shop(BaseApplication):
        def load_config(self) -> None:
            self.cfg.set("worker_class", "uvicorn.workers.UvicornH11Worker")
            self.cfg.set("worker_connections", 7)

    cfg = Shop().cfg
    assert (cfg.interface, cfg.loop, cfg.worker_concurrency) == ("asgi", "asyncio", 7)
    with pytest.raises(ValueError, match="worker_class = 'eventlet' is gunicorn's and not supported"):
        cfg.set("worker_class", "eventlet")
    cfg.set("interface", "wsgi")
    assert (cfg.interface, cfg.loop) == ("wsgi", "asyncio")


def test_a_server_without_a_given_name_has_one() -> None:
    class Shop(BaseApplication):
        def load_config(self) -> None:
            pass

    cfg = Shop().cfg
    assert cfg.proc_name == "stanchion"
    for setting, name in (("wsgi_app", "shop:app"), ("paste", __file__), ("proc_name", "mine")):
        cfg.set(setting, name)
        assert cfg.proc_name == name
