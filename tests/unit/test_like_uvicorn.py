"""A program asks by `stanchion.run` in the words of `uvicorn.run`."""

import inspect
import re
import ssl
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from stanchion.app import like_uvicorn
from stanchion.config import schema

DOCS = Path(__file__).parents[2] / "docs" / "migrating" / "from-uvicorn.md"
PLURAL = {"header": "headers", "reload-dir": "reload_dirs", "reload-include": "reload_includes"}
PLURAL |= {"reload-exclude": "reload_excludes"}
"""The flag -> the name, where it is not the same."""
NAMES = list(inspect.signature(uvicorn.run).parameters)[1:]
SETTINGS = {setting.name for setting in schema()}
SAME = [
    name for name in NAMES if name in SETTINGS and name not in like_uvicorn.HANDLED and name not in like_uvicorn.FOREIGN
]


def app(environ: Any, start_response: Any) -> Any:
    """The server never calls it here."""


def test_each_name_of_uvicorn_has_its_place_and_a_row_in_the_docs() -> None:
    places = [*SAME, *like_uvicorn.RENAMED, *like_uvicorn.FOREIGN, *like_uvicorn.HANDLED]
    assert sorted(places) == sorted(NAMES)
    told = rows()
    assert sorted(told) == sorted(NAMES)
    # Of a name that cannot be honoured, the page lists the only values.
    assert {name for name, values in told.items() if values.startswith("only")} == set(like_uvicorn.FOREIGN)


def rows() -> dict[str, str]:
    """Each name that the page's table of flags has, and which values `stanchion.run` takes."""
    part = DOCS.read_text().partition("## What has each flag become?")[2].partition("\n## ")[0]
    told = {}
    for line in part.splitlines():
        if line.startswith("| `"):
            first, _, values = line.strip("| ").split(" | ")
            for name in re.findall(r"`(?:--(?!no-|version|help))?([a-z][a-z0-9_-]*)`", first):
                told[PLURAL.get(name, name).replace("-", "_")] = values
    return told


def test_all_that_is_so_by_default_in_uvicorn_may_be_said() -> None:
    """A program may hand on settings that it was not given."""
    defaults = {name: one.default for name, one in inspect.signature(uvicorn.run).parameters.items() if name != "app"}
    # In uvicorn these are a dict with formatters of its own.
    del defaults["log_config"]
    translated = like_uvicorn.translate("shop:app", defaults)
    assert translated.refusals == []
    assert set(translated.settings) <= SETTINGS
    assert translated.settings["bind"] == "127.0.0.1:8000"
    assert translated.settings["keepalive"] == 5
    assert translated.settings["accesslog"] == "-"


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"host": "0.0.0.0"}, {"bind": "0.0.0.0:8000"}),
        ({"port": 0}, {"bind": "127.0.0.1:0"}),
        ({"host": "::1", "port": 81}, {"bind": "[::1]:81"}),
        ({"uds": Path("/run/a"), "host": None}, {"bind": "unix:/run/a"}),
        ({"fd": 3}, {"bind": "fd://3"}),
        ({"bind": ["a:1", "b:2"]}, {"bind": ["a:1", "b:2"]}),
        ({"workers": 3, "threads": 2}, {"workers": 3, "threads": 2}),
        ({"workers": None}, {}),
        ({"log_level": "INFO"}, {"loglevel": "info"}),
        ({"log_level": 30}, {"loglevel": "warning"}),
        ({"access_log": False}, {}),
        ({"access_log": True, "accesslog": "/a"}, {"accesslog": "/a"}),
        ({"proxy_headers": False, "forwarded_allow_ips": "*"}, {"forwarded_allow_ips": ""}),
        ({"forwarded_allow_ips": ["::1", "10.0.0.0/8"]}, {"forwarded_allow_ips": "::1,10.0.0.0/8"}),
        ({"ssl_keyfile": Path("k"), "ssl_certfile": "c"}, {"keyfile": "k", "certfile": "c"}),
        ({"ssl_cert_reqs": ssl.CERT_REQUIRED}, {"cert_reqs": ssl.CERT_REQUIRED}),
        ({"limit_concurrency": 9, "limit_max_requests": 8}, {"worker_concurrency": 9, "max_requests": 8}),
        ({"timeout_keep_alive": 7, "timeout_graceful_shutdown": 8}, {"keepalive": 7, "graceful_timeout": 8}),
        ({"ws_ping_interval": None}, {"ws_ping_interval": 0}),
        ({"interface": "asgi3", "loop": "asyncio"}, {"interface": "asgi", "loop": "asyncio"}),
        ({"http2": True}, {"http_protocols": "h2,h1"}),
        ({"log_config": None}, {}),
        ({"log_config": {"version": 1}}, {"logconfig_dict": {"version": 1}}),
        ({"log_config": "a.json"}, {"logconfig_json": "a.json"}),
        ({"log_config": "a.ini"}, {"logconfig": "a.ini"}),
        ({"app_dir": "src", "root_path": "/a"}, {"pythonpath": "src", "root_path": "/a"}),
        ({"reload": False, "reload_dirs": []}, {}),
        ({"http": "h11", "ws": "wsproto", "use_colors": False, "headers": []}, {}),
    ],
)
def test_names_become_settings(options: dict[str, Any], settings: dict[str, Any]) -> None:
    assert like_uvicorn.translate(app, options) == (settings, [])


def test_an_app_that_is_named_is_a_setting_too() -> None:
    assert like_uvicorn.translate("shop:app", {}).settings == {"wsgi_app": "shop:app"}
    named = like_uvicorn.translate("shop:make", {"factory": True, "reload": True})
    assert named == ({"wsgi_app": "shop:make()", "reload": True}, [])


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"host": "a", "uds": "/b"}, "uds, host and port name several places"),
        ({"reload": True}, 'name the app as "module:app"'),
        ({"ws": "none"}, "ws='none' cannot be honoured: WebSockets are always served"),
        ({"headers": [("a", "b")]}, "headers=[('a', 'b')] cannot be honoured"),
        ({"server_header": False}, "server_header=False cannot be honoured"),
        ({"env_file": ".env"}, "load_dotenv"),
        ({"ssl_keyfile_password": "secret"}, "keep the key in a file without one"),
        ({"interface": "asgi2"}, "guarantee_single_callable"),
        ({"log_config": "a.yaml"}, "YAML is not read here"),
        ({"wsgi_app": "a:b"}, "the app is the first argument"),
    ],
)
def test_what_cannot_be_honoured_is_refused(options: dict[str, Any], refusal: str) -> None:
    (told,) = like_uvicorn.translate(app, options).refusals
    assert refusal in told


def test_all_that_is_wrong_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        like_uvicorn.run(app, ws="none", prot=8000, workers=0, loop="trio")
    assert ended.value.code == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 4 and all(line.startswith("stanchion: run(): ") for line in told), told
    assert "there is no 'prot'; did you mean 'port'?" in told[1]
    assert "setting `workers` from the program" in told[2]
    assert "`loop`" in told[3]


def test_a_password_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        like_uvicorn.run(app, ssl_keyfile_password="hunter2")
    assert "hunter2" not in capsys.readouterr().err
