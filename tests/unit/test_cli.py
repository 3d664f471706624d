"""The command line: commands, flags, help, and where each value came from."""

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from stanchion import __version__, config, usage
from stanchion.cli import main
from stanchion.output import masked


def check(*arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    assert main(["check", "--json", *arguments]) == 0
    answer: dict[str, dict[str, object]] = json.loads(capsys.readouterr().out)
    return answer


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "site:app", "-w", "2"],
        ["serve", "-w", "2", "site:app"],
        ["site:app", "-w", "2"],
        ["-w", "2", "site:app"],
        ["-w2", "site:app", "--threads=1"],
    ],
)
def test_the_app_stands_anywhere_and_serve_goes_without_saying(arguments, served):
    assert main(arguments) == 7
    assert served.settings["wsgi_app"] == "site:app"
    assert served.settings["workers"] == 2
    assert served.host.spec == "site:app"


def test_a_setting_that_is_given_reaches_the_server_though_it_be_the_default(served):
    main(["--preload", "--workers", "1", "site:app"])
    assert served.settings == {"preload_app": True, "workers": 1, "wsgi_app": "site:app"}


def test_without_an_app_it_says_how_to_name_one(served, capsys):
    assert main([]) == 2
    assert errors(capsys) == ["stanchion: no app to serve: name it, as in `stanchion serve module:app`"]
    assert not hasattr(served, "settings")


def test_each_layer_over_the_one_below(home, monkeypatch, capsys):
    monkeypatch.setenv("WEB_CONCURRENCY", "2")
    monkeypatch.setenv("PORT", "9000")
    (home / "gunicorn.conf.py").write_text("workers = 3\nthreads = 3\ntimeout = 3\n")
    monkeypatch.setenv("GUNICORN_CMD_ARGS", "--threads 4 --timeout 4 --keep-alive 4")
    monkeypatch.setenv("STANCHION_CMD_ARGS", "--timeout 5 --keep-alive 5")
    answer = check("--keep-alive", "6", capsys=capsys)
    shown = {name: (answer[name]["value"], answer[name]["origin"]) for name in answer}
    assert shown["bind"] == (["0.0.0.0:9000"], "environment PORT")
    assert shown["workers"] == (3, "config file gunicorn.conf.py")
    assert shown["threads"] == (4, "GUNICORN_CMD_ARGS")
    assert shown["timeout"] == (5, "STANCHION_CMD_ARGS")
    assert shown["keepalive"] == (6, "command line")
    assert shown["backlog"] == (2048, "default")
    assert shown["config"] == ("gunicorn.conf.py", "working directory")


def test_a_bind_replaces_those_below_it(home, capsys):
    (home / "c.py").write_text("bind = [':1', ':2']\n")
    assert check("-c", "c.py", capsys=capsys)["bind"]["value"] == [":1", ":2"]
    answer = check("-c", "c.py", "-b", ":3", "--bind", "unix:s", capsys=capsys)
    assert answer["bind"]["value"] == [":3", "unix:s"]


def test_the_process_model_has_its_flags(capsys):
    flags = ["--signals", "unicorn", "--max-memory", "300M", "--control", "unix:/run/c", "--worker-port-base", "9293"]
    answer = check(*flags, "-u", "33", "-g", "www", "--initgroups", "-m", "027", "--reuse-port", capsys=capsys)
    named = ("signals", "max_memory", "control", "worker_port_base", "user", "group", "initgroups", "umask")
    assert [answer[name]["value"] for name in (*named, "reuse_port")] == [
        "unicorn", 300 << 20, "unix:/run/c", 9293, "33", "www", True, 0o027, True,
    ]  # fmt: skip
    assert main(["check", "-m", "027"]) == 0
    assert ["umask", "0o27", "command", "line"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_flags_that_switch_on_and_off(capsys):
    answer = check("--no-preload", "--no-sendfile", "--reload", capsys=capsys)
    assert [answer[name]["value"] for name in ("preload_app", "sendfile", "reload")] == [False, False, True]
    assert check("--no-preload", "--preload", capsys=capsys)["preload_app"]["value"] is True


def test_gunicorns_spelling_of_the_field_size(capsys):
    for flag in ("--limit-request-field_size", "--limit-request-field-size"):
        assert check(flag, "100", capsys=capsys)["limit_request_field_size"]["value"] == 100


def test_each_bad_value_is_one_line(capsys):
    assert main(["check", "-w", "x", "--timeout", "-1", "-b", "::1", "-e", "A", "--chdir", "nowhere"]) == 2
    assert errors(capsys) == [
        "stanchion: setting `bind` from command line: an IPv6 address is written in brackets, "
        "such as [::1]:8000, got '::1'",
        "stanchion: setting `raw_env` from command line: it is written KEY=VALUE, got 'A'",
        "stanchion: setting `timeout` from command line: expected a number of seconds from 0 to 1000000000, got '-1'",
        "stanchion: setting `workers` from command line: "
        "expected a whole number >= 1, two such as 2..8, or auto, got 'x'",
        "stanchion: setting `chdir` from command line: there is no directory 'nowhere'",
    ]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--wrokers", "3"], "command line: there is no flag --wrokers; did you mean --workers?"),
        (["--xyzzy=1"], "command line: there is no flag --xyzzy"),
        (["a:a", "b:b"], "command line: one app at a time, not also 'b:b'"),
        (["--timeout"], "command line: -t/--timeout needs a value: SECONDS (Kill a worker that runs a request longer)"),
        (["--compress"], "command line: --compress needs a value: LIST (Compress answers: zstd,br,gzip)"),
        (["--lifespan"], "command line: --lifespan/--asgi-lifespan needs a value: auto, on, off"),
        (["--dirty-app"], "command line: --dirty-app needs a value"),
        (["--work", "3"], "command line: there is no flag --work; did you mean --workers?"),
        (["serv", "a:a"], "command line: there is no command 'serv'; did you mean serve?"),
        (["--host", "::1", "a:a"], "command line: --host is uvicorn's and granian's: use --bind HOST:PORT"),
        (["-w", "2", "chek", "a:a"], "command line: there is no command 'chek'; did you mean check?"),
    ],
)
def test_each_slip_of_the_command_line_is_one_line(arguments, error, capsys):
    assert main(["check", *arguments]) == 2
    assert errors(capsys) == [f"stanchion: {error}"]


def test_each_flag_of_another_server_has_its_own_line(capsys):
    assert main(["check", "api:app", "--uds", "/run/s", "--factory", "--xyzzy", "--http=auto", "--factory"]) == 2
    assert errors(capsys) == [
        "stanchion: command line: --uds is uvicorn's and granian's: use --bind unix:PATH",
        "stanchion: command line: --factory is uvicorn's and granian's: name the app as \"MODULE:FACTORY()\"",
        "stanchion: command line: there is no flag --xyzzy",
        "stanchion: command line: --http is uvicorn's: leave it out: HTTP is read in Rust; "
        "granian's: use --http-protocols h1, or h2,h1",
    ]


@pytest.mark.parametrize("name", ["GUNICORN_CMD_ARGS", "STANCHION_CMD_ARGS"])
@pytest.mark.parametrize("text", ["--bogus", "-w 'two", "--dirty-app a:b"])
def test_a_slip_in_a_variable_is_told_from_one_on_the_command_line(name, text, monkeypatch, capsys):
    monkeypatch.setenv(name, text)
    assert main(["check"]) == 2
    assert errors(capsys)[0].startswith(f"stanchion: {name}: ")


def test_a_variable_may_name_the_config_file(home, monkeypatch, capsys):
    for name in ("a", "b", "c"):
        (home / f"{name}.py").write_text(f"proc = '{name}'\nraw_env = ['FROM={name}']\n")
    wanted = [("GUNICORN_CMD_ARGS", "-c a.py", "a.py"), ("STANCHION_CMD_ARGS", "-c b.py", "b.py")]
    for variable, text, file in wanted:
        monkeypatch.setenv(variable, text)
        answer = check(capsys=capsys)
        assert (answer["config"]["value"], answer["config"]["origin"]) == (file, variable)
        assert answer["raw_env"]["origin"] == f"config file {file}"
    assert check("-c", "c.py", capsys=capsys)["raw_env"]["origin"] == "config file c.py"


def test_flags_of_gunicorn_without_use_here_are_taken_without_a_word(capsys):
    assert main(["check", "-k", "gthread", "--worker-tmp-dir", "/dev/shm", "--worker-connections", "9"]) == 0
    assert errors(capsys) == []


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["-k", "eventlet"], "-k eventlet is gunicorn's and not supported"),
        (["--dirty-app", "a:b"], "task queue"),
    ],
)
def test_other_flags_of_gunicorn_are_refused_with_a_way_out(arguments, part, capsys):
    assert main([*arguments, "site:app"]) == 2
    (line,) = errors(capsys)
    assert part in line


def test_the_surroundings_are_made_before_serving(home, monkeypatch, served):
    monkeypatch.setenv("GREETING", "old")
    (home / "site").mkdir()
    main(["--chdir", "site", "--pythonpath", "lib,more", "-e", "GREETING=a=b", "app"])
    assert Path.cwd() == home / "site"
    # Each path goes before the last one, as in gunicorn.
    assert sys.path[:3] == [str(home / "site" / name) for name in ("more", "lib")] + [str(home / "site")]
    assert os.environ["GREETING"] == "a=b"


@pytest.mark.privileges
def test_check_tells_what_each_process_would_be_allowed(home, capsys):
    assert main(["check", "--worker-no-new-privs"]) == 0
    shown = capsys.readouterr().out.partition("Privileges, if it were started here and now:\n")[2]
    lines = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert list(lines) == ["master", "acceptor", "template", "workers"]
    assert all(text.startswith(f"user {os.geteuid()}, ") for text in lines.values())
    assert "no_new_privs, not dumpable" in lines["acceptor"]
    assert lines["workers"] == lines["template"] and lines["workers"].endswith(", no_new_privs")
    assert main(["check", "--user", "no-such-user"]) == 0
    assert "  none      settings `user` and `group`: there is no user no-such-user" in capsys.readouterr().out


def test_check_leaves_the_surroundings_alone(home, monkeypatch):
    (home / "site").mkdir()
    monkeypatch.delenv("GREETING", raising=False)
    assert main(["check", "--chdir", "site", "-e", "GREETING=hi"]) == 0
    assert Path.cwd() == home
    assert "GREETING" not in os.environ


def test_check_shows_what_was_changed_alone(home, capsys):
    (home / "gunicorn.conf.py").write_text("threads = 4\n")
    assert list(check("--changed", "-w", "1", capsys=capsys)) == ["workers", "threads", "config"]
    assert main(["check", "--changed", "-w", "1"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert lines == [
        ["workers", "1", "command", "line"],
        ["threads", "4", "config", "file", "gunicorn.conf.py"],
        ["config", "gunicorn.conf.py", "working", "directory"],
    ]
    (home / "gunicorn.conf.py").unlink()
    assert main(["check", "--changed"]) == 0
    assert capsys.readouterr().out == "Every setting has its default value.\n"


def test_the_table_is_aligned_and_whole(capsys):
    assert main(["check", "-w", "3"]) == 0
    lines = capsys.readouterr().out.partition("\nPrivileges")[0].splitlines()
    rows = [line.split() for line in lines if line.startswith("  ")]
    assert [row[0] for row in rows] == [setting.name for setting in config.schema()]
    origins = {line.index("default") for line in lines if line.endswith(" default") and len(line) < 72}
    assert len(origins) == 1
    assert ["workers", "3", "command", "line"] in rows


@pytest.mark.parametrize("command", [["serve"], ["check"], ["site:app"]])
def test_short_help_has_one_line_for_each_flag(command, capsys):
    assert main([*command, "-h"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 79
    flagged = [setting for setting in config.schema() if setting.flags]
    for setting in flagged:
        assert len([line for line in lines if line.endswith(f"  {setting.help}")]) == 1


def test_full_help_tells_everything(capsys):
    assert main(["serve", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 79
    words = " ".join(" ".join(lines).split())
    for setting in config.schema():
        assert f"Setting {setting.name}, default {usage.show(setting.default, setting.kind)}" in words
        assert all(" ".join(part.split()) in words for part in setting.long_help.split("\n\n"))
    assert "4 the app could not be loaded" in words


@pytest.mark.parametrize("flag", ["-v", "--version"])
def test_version(flag, capsys):
    assert main([flag]) == 0
    version, python, protocols, loops = capsys.readouterr().out.splitlines()
    assert version == f"stanchion {__version__}"
    assert platform.python_version() in python and "HTTP/2" in protocols
    assert f"uvloop {metadata.version('uvloop')}" in loops


def test_a_dry_run_is_check(capsys):
    assert main(["check", "--workers", "3", "shop:app"]) == 0
    checked = capsys.readouterr()
    assert main(["serve", "--workers", "3", "--dry-run", "shop:app"]) == 0
    assert capsys.readouterr() == checked


def test_python_dash_m_and_a_reader_that_has_seen_enough():
    command = [sys.executable, "-m", "stanchion", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 0


SECRETS = [
    ("raw_env", ["PASSWORD=hunter2", "PLAIN=hunter2"], "PASSWORD=***, PLAIN=***"),
    ("wsgi_app", "shop:make('a', token='hunter2', size=3)", "shop:make('a', token=***, size=3)"),
    ("wsgi_app", "shop:make('https://me:hunter2@db/x')", "shop:make('https://***@db/x')"),
    ("wsgi_app", "tokens.key:make(token='hunter2')", "tokens.key:make(token=***)"),
    ("dogstatsd_tags", "env:live,api-key:hunter2", "env:live,api-key:***"),
    ("lane", ["vip header=Authorization:hunter2"], "vip header=Authorization:***"),
    ("access_log_format", "x Cookie: hunter2 %(h)s", "x Cookie: *** %(h)s"),
]


@pytest.mark.parametrize(("name", "value", "shown"), SECRETS)
def test_check_shows_no_secret(name, value, shown, home, capsys):
    (home / "c.py").write_text(f"{name} = {value!r}\n")
    for words in (["check", "-c", "c.py"], ["check", "-c", "c.py", "--json"]):
        assert main(words) == 0
        out = capsys.readouterr().out
        assert "hunter2" not in out
        assert shown in out or "--json" in words


@pytest.mark.parametrize("app", ["monkey.wsgi:app", "tokens:app", "secret:app"])
def test_check_shows_which_app_whatever_it_is_called(app, capsys):
    assert check(app, capsys=capsys)["wsgi_app"]["value"] == app
    assert main(["check", app]) == 0
    assert ["wsgi_app", app, "command", "line"] in [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://me@host/db", "postgres://***@host/db"),
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
        ("headers authorization: Bearer abc.def, x", "headers authorization: ***, x"),
        ("{'password': 'a b', 'n': 1}", "{'password': ***, 'n': 1}"),
        ("keepalive=3 worker=2", "keepalive=3 worker=2"),
        ("AWS_SECRET_ACCESS_KEY=a+b/c", "AWS_SECRET_ACCESS_KEY=***"),
        ("https://h/?apikey=abc&x=1", "https://h/?apikey=***&x=1"),
        ("https://h/?sig=abc&x=1", "https://h/?sig=***&x=1"),
        ("X-Amz-Signature=abc clientSecret=abc dbApiKey=abc", "X-Amz-Signature=*** clientSecret=*** dbApiKey=***"),
        ("PGPASSWORD=abc accesstoken=abc key2=abc", "PGPASSWORD=*** accesstoken=*** key2=***"),
        ("pass='x y' bypass=1", "pass=*** bypass=1"),
        ("http://u:p/w@h", "http://***@h"),
        ("https://api:p#w@h/x next@word", "https://***@h/x next@word"),
        ("Authorization: ApiKey abc", "Authorization: ***"),
        ("Authorization: Other YWJj== n=1", "Authorization: *** n=1"),
        ("vip header=Authorization:abc priority=1", "vip header=Authorization:*** priority=1"),
        ("lane=turkey:x monkey=1 tokenizer=2 sign=3", "lane=turkey:x monkey=1 tokenizer=2 sign=3"),
        ("token=password=abc n=1", "token=*** n=1"),
        ('{"credentials": ["me", "abc"], "n": 1}', '{"credentials": ***, "n": 1}'),
        (r'{"password": "a\"bc", "n": 1}', '{"password": ***, "n": 1}'),
    ],
)
def test_what_looks_like_a_secret(text, shown):
    assert masked(text) == shown
    assert masked([text, "plain"]) == [shown, "plain"]


def test_variables_of_uvicorn_are_not_read_and_that_is_told(capsys, monkeypatch):
    monkeypatch.setenv("UVICORN_PORT", "81")
    monkeypatch.setenv("UVICORN_HOST", "::1")
    monkeypatch.setenv("STANCHION_CMD_ARGS", "--workers 3")
    assert main(["check", "--json"]) == 0
    shown = capsys.readouterr()
    why = "environment: ignored, as uvicorn's variables are not read here"
    told = f"{why}: UVICORN_HOST, UVICORN_PORT (use STANCHION_CMD_ARGS)"
    assert shown.err.splitlines() == [f"stanchion: warning: {told}"]
    values = json.loads(shown.out)
    assert (values["workers"]["value"], values["bind"]["origin"]) == (3, "default")
