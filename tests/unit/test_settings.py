"""Our names, flags and defaults against the gunicorn that is installed."""

import inspect
import tomllib
from pathlib import Path

import pytest

from stanchion import __version__, config, gunicorn, hooks

ROOT = Path(__file__).parents[2]

# Where we differ on purpose, with the reason.
OTHER_DEFAULTS = {
    "preload_app",  # workers are forked from a template that holds the app
    "config",  # ours is shown only if it is there
    "user",  # gunicorn shows the user it runs as, we show that it stays
    "group",  # the same for the group
    "umask",  # every user may connect to gunicorn's unix sockets, to ours the owner and the group
    "proc_name",  # gunicorn's is its own name until it knows the app
    "chdir",  # gunicorn shows the working directory, we show that it stays
    "logconfig_dict",  # gunicorn's is empty, ours is not there
    "logger_class",  # gunicorn's own, ours is not there
    "forwarded_allow_ips",  # gunicorn believes peers on unix sockets whatever it says, ours says so
    "proxy_allow_ips",  # the same for the PROXY protocol
    "uwsgi_allow_ips",  # the same for uwsgi
    "certfile",  # gunicorn takes one, we take several
    "keyfile",  # gunicorn takes one, we take several
}


def ours() -> dict[str, config.Setting]:
    return {setting.name: setting for setting in config.schema() if setting.gunicorn}


def gunicorns() -> dict[str, type]:
    module = pytest.importorskip("gunicorn.config")
    return {setting.name: setting for setting in module.KNOWN_SETTINGS}


def test_the_version_is_the_same_everywhere():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__
    assert tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"] == __version__


def test_every_name_of_gunicorn_has_a_place():
    placed = {*ours(), *gunicorn.NAMES, *hooks.ARGUMENTS}
    assert placed == set(gunicorns())


def test_no_name_has_two_places():
    names = [*(setting.name for setting in config.schema()), *gunicorn.NAMES]
    assert len(names) == len(set(names))
    assert hooks.NAMES.isdisjoint(names)


def test_every_flag_of_gunicorn_is_known():
    for name, setting in gunicorns().items():
        if name in ours():
            mine = {*ours()[name].flags, *ours()[name].off_flags}
        else:
            others = (*gunicorn.FOREIGN, *gunicorn.SYNONYMS)
            mine = {flag for one in others if one.name == name for flag in one.flags}
        assert set(setting.cli or ()) <= mine, name


def test_flags_take_a_value_where_gunicorns_do():
    known = gunicorns()
    for foreign in gunicorn.FOREIGN:
        if foreign.flags:
            takes_value = known[foreign.name].action not in ("store_true", "store_const")
            assert foreign.takes_value == takes_value, foreign.name


def test_hooks_take_what_gunicorns_take():
    for name, arguments in hooks.ARGUMENTS.items():
        theirs = inspect.signature(gunicorns()[name].default).parameters
        assert len(arguments) == len(theirs), name


def test_defaults_are_gunicorns():
    gunicorn_config = pytest.importorskip("gunicorn.config").Config()
    compared = set(ours()) - OTHER_DEFAULTS
    theirs = {name: getattr(gunicorn_config, name) for name in compared}
    for name in ("forwarder_headers", "http_protocols"):
        theirs[name] = ",".join(theirs[name])
    assert {name: ours()[name].default for name in compared} == theirs
    for name in ("forwarded_allow_ips", "proxy_allow_ips", "uwsgi_allow_ips"):
        believed = [*getattr(gunicorn_config, name), "unix"]
        assert ours()[name].default == ",".join(believed)
