"""Each flag changes its setting and nothing else; each flag of gunicorn is taken as the list says that it is in."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stanchion import _stanchion, config, gunicorn, hooks
from stanchion.cli import main

ROOT = Path(__file__).parents[2]

# The word that a flag is given, and the value it makes, where the kind of value does not define them.
VALUES: dict[str, tuple[str, object]] = {
    "bind": ("unix:/run/s", ["unix:/run/s"]),
    "certfile": ("pair.pem", ["pair.pem"]),
    "warm_up": ("/login", "/login"),
    "static_files": ("/static=files", ["/static=files"]),
    "lane": ("vip path=/vip", ["vip path=/vip"]),
    "raw_env": ("A=1", ["A=***"]),  # as it is shown
    "raw_paste_global_conf": ("a=1", ["a=1"]),
    "chdir": (".", "."),
    "root_path": ("/shop", "/shop"),
    "redirect_to_https": ("443", "443"),
    "forwarded_allow_ips": ("10.0.0.0/8", "10.0.0.0/8"),
    "proxy_allow_ips": ("10.0.0.0/8", "10.0.0.0/8"),
    "uwsgi_allow_ips": ("10.0.0.0/8", "10.0.0.0/8"),
    "admin": ("127.0.0.1:9000", "127.0.0.1:9000"),
    "control": ("unix:/run/c", "unix:/run/c"),
    "health_path": ("/healthy", "/healthy"),
    "http_protocols": ("h2,h1", "h2,h1"),
    "compress": ("gzip,br", "gzip,br"),
    "compress_types": ("text/*", "text/*"),
    "otlp_endpoint": ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
    "access_log_format": ("%(h)s", "%(h)s"),
    "statsd_host": ("127.0.0.1:8125", "127.0.0.1:8125"),
    "syslog_addr": ("udp://127.0.0.1:514", "udp://127.0.0.1:514"),
    "syslog_facility": ("local0", "local0"),
}


def flags() -> Iterator[tuple[str, str]]:
    """(setting, flag) of every flag."""
    for setting in config.schema():
        for flag in (*setting.flags, *setting.off_flags):
            yield setting.name, flag


def write_files(home: Path) -> None:
    """Write the files that some of these values name."""
    (home / "other").write_text("")
    keys = ROOT / "crates/stanchion-tls/tests/keys"
    (home / "pair.pem").write_text((keys / "one.pem").read_text() + (keys / "one.key").read_text())


def other_value(setting: config.Setting, flag: str) -> tuple[list[str], object]:
    """Words for the flag which make another value of the setting than its default, and that value."""
    if setting.kind == "bool":
        return [], flag not in setting.off_flags
    if setting.name in VALUES:
        text, value = VALUES[setting.name]
    elif setting.kind in ("int", "workers", "bytes", "seconds", "octal"):
        # A limit of memory has a least value, beside 0.
        value = setting.default + (1 << 20 if setting.kind == "bytes" and not setting.default else 1)
        text = str(value)
    elif setting.kind == "choice":
        text = value = next(word for word in setting.choices or () if word != setting.default)
    else:
        text, value = "other", ["other"] if setting.kind == "list" else "other"
    return [text], value


@pytest.mark.parametrize(("name", "flag"), [*flags()])
def test_a_flag_changes_its_setting_alone(name, flag, home, capsys):
    setting = next(setting for setting in config.schema() if setting.name == name)
    write_files(home)
    words, value = other_value(setting, flag)
    # A switch that is on by default shows only against a file that has switched it off.
    (home / "c.py").write_text(f"{name} = {not value}\n" if setting.kind == "bool" else "")
    before = [] if name == "config" else ["-c", "c.py"]
    assert main(["check", "--json", *before, flag, *words]) == 0
    answer = json.loads(capsys.readouterr().out)
    if name == "paste":
        value = str(home / "other")
    assert answer.pop(name) == {"value": value, "origin": "command line"}
    expected = {one.name: one.default for one in config.schema() if one.name not in (name, "config")}
    answer.pop("config", None)
    assert {one: told["value"] for one, told in answer.items()} == expected
    assert setting.kind == "bool" or value != setting.default


# ---- gunicorn's


def gunicorns() -> list[tuple[str, str, bool]]:
    """(setting, flag, whether it takes a value) of every flag of the gunicorn that is installed."""
    module = pytest.importorskip("gunicorn.config")
    return [
        (known.name, flag, known.action not in ("store_true", "store_const", "store_false"))
        for known in module.KNOWN_SETTINGS
        for flag in known.cli or ()
    ]


def test_every_setting_of_gunicorn_is_in_one_list():
    lists = [
        [setting.name for setting in config.schema() if setting.gunicorn] + list(hooks.ARGUMENTS),
        [synonym.name for synonym in gunicorn.SYNONYMS],
        [foreign.name for foreign in gunicorn.FOREIGN if foreign.refusal is None],
        [foreign.name for foreign in gunicorn.FOREIGN if foreign.refusal is not None],
    ]
    names = [known.name for known in pytest.importorskip("gunicorn.config").KNOWN_SETTINGS]
    assert sorted(name for one in lists for name in one) == sorted(names)


@pytest.mark.parametrize("foreign", gunicorn.FOREIGN, ids=lambda foreign: foreign.name)
def test_each_has_one_reason(foreign):
    assert [foreign.refusal, foreign.harmless, foreign.instead].count(None) >= 2


@pytest.mark.parametrize(("name", "flag", "takes_value"), gunicorns())
def test_a_flag_of_gunicorn_is_taken_as_its_list_says(name, flag, takes_value, home, capsys):
    meant = next((synonym.setting for synonym in gunicorn.SYNONYMS if synonym.name == name), name)
    setting = next((setting for setting in config.schema() if setting.name == meant), None)
    write_files(home)
    if setting is not None:
        assert setting.gunicorn == (meant == name)
        words, _ = other_value(setting, flag)
        assert bool(words) == takes_value
        assert main(["check", flag, *words]) == 0
        assert f"{flag} " not in capsys.readouterr().err
        return
    foreign = gunicorn.BY_NAME[name]
    code = main(["check", flag, *(["other"] if takes_value else [])])
    words = capsys.readouterr().err
    if foreign.refusal is not None:
        assert (code, foreign.refusal in words) == (2, True)
    else:
        assert (code, "ignored" in words) == (0, foreign.harmless is None)


UVICORNS = ["uvicorn.workers.UvicornWorker", "uvicorn_worker.UvicornWorker"]
H11 = ["uvicorn.workers.UvicornH11Worker", "uvicorn_worker.UvicornH11Worker"]
CLASSES = {
    ("wsgi", "auto"): ["sync", "gthread", "gunicorn.workers.sync.SyncWorker", "gunicorn.workers.gthread.ThreadWorker"],
    ("asgi", "auto"): ["asgi", "ASGI", "gunicorn.workers.gasgi.ASGIWorker", *UVICORNS],
    ("asgi", "asyncio"): H11,
    ("wsgi", "gevent"): [
        "gevent",
        "gevent_pywsgi",
        "gunicorn.workers.ggevent.GeventWorker",
        "gunicorn.workers.ggevent.GeventPyWSGIWorker",
    ],
}


def interface_and_loop(capsys, *words: str) -> tuple[str, str]:
    assert main(["check", "--json", *words]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    answer = json.loads(shown.out)
    return answer["interface"]["value"], answer["loop"]["value"]


@pytest.mark.parametrize(("name", "meant"), [(name, meant) for meant, names in CLASSES.items() for name in names])
def test_a_worker_class_says_how_the_app_is_called(name, meant, home, capsys):
    (home / "c.py").write_text(f"worker_class = {name!r}\n")
    for words in (["-k", name], ["--worker-class", name], ["-c", "c.py"]):
        assert interface_and_loop(capsys, *words) == meant


def test_a_worker_class_may_be_the_class_itself(home, capsys):
    text = "class UvicornH11Worker: pass\nUvicornH11Worker.__module__ = 'uvicorn_worker'\n"
    (home / "c.py").write_text(text + "worker_class = UvicornH11Worker\n")
    assert interface_and_loop(capsys, "-c", "c.py") == ("asgi", "asyncio")


def test_what_is_said_outright_stands_above_the_class_in_one_place_and_below_what_a_higher_place_says(home, capsys):
    (home / "c.py").write_text("worker_class = 'uvicorn.workers.UvicornH11Worker'\nloop = 'uvloop'\n")
    assert interface_and_loop(capsys, "-c", "c.py") == ("asgi", "uvloop")
    assert interface_and_loop(capsys, "-c", "c.py", "--interface", "auto") == ("auto", "uvloop")
    assert interface_and_loop(capsys, "-c", "c.py", "-k", "gthread") == ("wsgi", "auto")
    for words in (["-k", H11[0], "--loop", "auto"], ["--loop", "auto", "-k", H11[0]]):
        assert interface_and_loop(capsys, *words) == ("asgi", "auto")


def test_a_class_on_the_command_line_takes_the_place_of_gevent_in_a_file(home, capsys, monkeypatch):
    for line in ("worker_class = 'gevent'", "loop = 'gevent'"):
        (home / "c.py").write_text(f"{line}\n")
        assert interface_and_loop(capsys, "-c", "c.py", "-k", "sync") == ("wsgi", "auto")
        for words in (["-k", "asgi"], ["-k", "uvicorn.workers.UvicornWorker"], ["--interface", "asgi"]):
            assert interface_and_loop(capsys, "-c", "c.py", *words) == ("asgi", "auto")
        assert interface_and_loop(capsys, "-c", "c.py", "-k", "asgi", "--loop", "uvloop") == ("asgi", "uvloop")
    (home / "c.py").write_text("worker_class = 'asgi'\nasgi_loop = 'uvloop'\n")
    assert interface_and_loop(capsys, "-c", "c.py", "-k", "asgi") == ("asgi", "uvloop")
    assert interface_and_loop(capsys, "-c", "c.py", "-k", "gevent") == ("wsgi", "gevent")
    monkeypatch.setenv("GUNICORN_CMD_ARGS", "-k gevent")
    assert interface_and_loop(capsys, "-k", "asgi") == ("asgi", "auto")


def test_gevent_and_an_asynchronous_app_in_one_place_contradict_each_other(capsys):
    assert main(["check", "--loop", "gevent", "--interface", "asgi"]) != 0
    assert "gevent runs WSGI apps, and `interface` from command line says asgi" in capsys.readouterr().err


def test_a_synonym_in_a_file_gives_the_setting_and_the_setting_itself_stands_above_it(home, capsys):
    (home / "c.py").write_text("worker_connections = 7\nasgi_loop = 'uvloop'\nasgi_lifespan = None\nloop = 'asyncio'\n")
    values = dict(config.resolve([config.read_file("c.py").layer]).values)
    assert (values["worker_concurrency"], values["loop"], values["lifespan"]) == (7, "asyncio", "auto")
    (home / "c.py").write_text("websocket_max_message_size = 65536\n")
    assert dict(config.resolve([config.read_file("c.py").layer]).values)["ws_max_size"] == 65536
    (home / "c.py").write_text("worker_connections = 'many'\n")
    assert main(["check", "-c", "c.py"]) == 2
    assert capsys.readouterr().err.startswith("stanchion: setting `worker_concurrency` from config file c.py: ")


def test_the_page_is_current():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/gunicorn-settings"],
        input=_stanchion.settings_schema(),
        capture_output=True,
        text=True,
        check=True,
    )
    page = ROOT / "docs/reference/gunicorn-settings.md"
    assert page.read_text() == done.stdout, "the tables have changed: run `make docs`"
