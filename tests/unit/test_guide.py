"""Words about one thing, the manual page, and completions, each read by the program that it is for."""

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from stanchion import _stanchion, config, gunicorn
from stanchion.cli import main
from stanchion.commands import COMMANDS
from support import missing
from support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
MANUAL = "packaging/data/share/man/man1/stanchion.1"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], ["help", "help"], ["help", "completion"]])
def test_the_first_page_is_short(words, capsys):
    lines = told(capsys, *words).splitlines()
    assert max(map(len, lines)) <= 79
    assert len(lines) <= 30
    assert [line.split()[0] for line in lines[2 : 2 + len(COMMANDS)]] == [name for name, _, _ in COMMANDS]
    assert sum(line.startswith("  -") for line in lines) == 11
    assert "stanchion serve --help" in lines[-2]


@pytest.mark.parametrize(
    "words", [["help", "workers"], ["help", "--workers"], ["help", "-w"], ["serve", "--help", "-w"]]
)
def test_one_flag_is_explained_alone(words, capsys):
    out = told(capsys, *words)
    assert out.startswith("-w, --workers N\n")
    assert "Setting workers, default 1, environment WEB_CONCURRENCY." in out
    assert "--threads" not in out


@pytest.mark.parametrize("setting", config.schema(), ids=lambda setting: setting.name)
def test_every_setting_can_be_asked_for(setting, capsys):
    for name in (setting.name, *setting.flags, *setting.off_flags):
        assert f"Setting {setting.name}, default " in " ".join(told(capsys, "help", name).split())


def test_what_is_not_ours_is_explained_too(capsys):
    assert gunicorn.BY_NAME["ssl_context"].refusal in told(capsys, "help", "ssl_context")
    assert gunicorn.BY_NAME["worker_tmp_dir"].harmless in told(capsys, "help", "worker-tmp-dir")
    for name in ("worker_connections", "--worker-connections"):
        assert "Setting worker_concurrency, default 1000" in told(capsys, "help", name)
    assert "Accepted: sync, gthread, " in told(capsys, "help", "-k")
    assert "post_fork(server, worker)" in told(capsys, "help", "post_fork")
    assert "before_fork(server, worker)" in told(capsys, "help", "before_fork")
    assert "stanchion ctl" in told(capsys, "help", "ctl")
    assert "--changed" in told(capsys, "help", "check")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["help", "wrokers"], "there is no command, flag, setting or hook 'wrokers'; did you mean workers?"),
        (["help", "xyzzy"], "there is no command, flag, setting or hook 'xyzzy'; `stanchion help` says what there is"),
        (["help", "-w", "-b"], "help explains one thing at a time: stanchion help WHAT"),
        (["completion"], "name a shell, as in `stanchion completion bash`: one of bash, zsh, fish"),
        (["completion", "csh"], "name a shell, as in `stanchion completion bash`: one of bash, zsh, fish"),
    ],
)
def test_a_slip_is_one_line(words, error, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err == f"stanchion: {error}\n"


def test_the_manual_page_has_every_setting_and_is_read_without_a_complaint(capsys, home):
    here("groff")
    (home / "stanchion.1").write_text(told(capsys, "help", "--man"))
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", "-rLL=200n", "stanchion.1"],
        capture_output=True,
        text=True,
        timeout=6 * PATIENCE_S,
        check=True,
    )
    assert done.stderr == ""
    # A hyphen and a minus sign, as which groff may show the one that is typed.
    page = " ".join(done.stdout.split()).replace("\u2010", "-").replace("\u2212", "-")
    for setting in config.schema():
        assert f"Setting {setting.name}, default " in page
        assert all(flag in page for flag in (*setting.flags, *setting.off_flags))


def test_the_manual_page_that_is_installed_is_current(capsys):
    page = told(capsys, "help", "--man")
    assert (ROOT / MANUAL).read_text() == page, "the tables have changed: run `make docs`"
    written = subprocess.run(
        [sys.executable, ROOT / "scripts/manual-page"],
        input=_stanchion.settings_schema(),
        capture_output=True,
        text=True,
        timeout=6 * PATIENCE_S,
        check=True,
    )
    assert written.stdout == page
    installed = [path for path in metadata.files("stanchion") or [] if path.name == "stanchion.1"]
    assert [path.locate().read_text() for path in installed] == [page]  # type: ignore[attr-defined]


def here(name: str) -> str:
    """Where this program is."""
    found = shutil.which(name)
    if why := missing.allowed("" if found else f"{name} is not installed"):
        pytest.skip(why)
    assert found
    return found


def offered(shell: str, script: str, home: Path) -> list[str]:
    """The words that a real shell prints when it runs the script."""
    done = subprocess.run(
        [here(shell), *(["--noprofile", "--norc"] if shell == "bash" else []), "-c", script],
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=6 * PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


OF_WORKERS = {
    "--workers",
    "--workers-keep",
    "--worker-concurrency",
    "--worker-sessions",
    "--worker-no-new-privs",
    "--worker-port-base",
}
CASES = [
    (["ch"], {"check"}),
    (["serve", "--work"], OF_WORKERS),
    (["--work"], OF_WORKERS),
    (["serve", "--signals", "u"], {"unicorn"}),
    (["check", "--chan"], {"--changed"}),
    (["serve", "--chan"], set()),
    (["completion", ""], {"bash", "zsh", "fish"}),
    (["help", "--worker-p"], {"--worker-port-base"}),
    (["serve", "-c", "a"], {"a.py"}),
    (["serve", "--chdir", "d"], {"deep"}),
    (["serve", "--workers", ""], set()),
]


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_bash_completes(words, expected, home, capsys):
    (home / "a.py").write_text("")
    (home / "deep").mkdir()
    (home / "c").write_text(told(capsys, "completion", "bash"))
    line = " ".join(f"'{word}'" for word in ("stanchion", *words))
    script = f'source ./c; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _stanchion; echo "${{COMPREPLY[@]}}"'
    assert set(offered("bash", script, home)) == expected
    script = "source ./c; complete -p stanchion"
    assert offered("bash", script, home) == ["complete", "-o", "default", "-F", "_stanchion", "stanchion"]


# The last one left out: fish offers files where it knows of nothing else.
@pytest.mark.parametrize(("words", "expected"), CASES[:-1])
def test_fish_completes(words, expected, home, capsys):
    (home / "a.py").write_text("")
    (home / "deep").mkdir()
    (home / "c").write_text(told(capsys, "completion", "fish"))
    typed = " ".join(("stanchion", *words))
    # It gives a word and what it means on a line, and a directory with a slash.
    script = f"source ./c; complete --do-complete '{typed}' | string replace --regex '\\t.*' ''; true"
    assert {word.rstrip("/") for word in offered("fish", script, home)} == expected


def test_zsh_takes_it(home, capsys):
    (home / "_stanchion").write_text(told(capsys, "completion", "zsh"))
    script = (
        "autoload -Uz compinit && compinit -u -d ./dump && source ./_stanchion && print ${_comps[stanchion]} && "
        "functions _stanchion > /dev/null && zsh -n ./_stanchion"
    )
    assert offered("zsh", script, home) == ["_stanchion"]
