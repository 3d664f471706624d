"""Each flag of uvicorn, hypercorn and granian is ours with the same meaning, or is answered with what to do here."""

import argparse
import re

import pytest

from stanchion import config, gunicorn
from stanchion.other_servers import ANSWERS, SAME, answer

OURS = {
    *("-h", "--help", "-v", "--version"),
    *(flag for setting in config.schema() for flag in (*setting.flags, *setting.off_flags)),
    *(flag for foreign in gunicorn.FOREIGN for flag in foreign.flags),
}


def flags_of_click(command: str, module: str) -> set[str]:
    """The flags of a program that is made with click, from which it has --help."""
    program = getattr(pytest.importorskip(module), command)
    words = [flag for one in program.params for flag in (*one.opts, *one.secondary_opts)]
    return {"--help", *(word for word in words if word.startswith("-"))}


def flags_of_hypercorn(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """It makes its parser in the function that it then serves in, so that function is run as far as for `--help`."""
    program = pytest.importorskip("hypercorn.__main__")
    parsers: list[argparse.ArgumentParser] = []
    show = argparse.ArgumentParser.print_help
    monkeypatch.setattr(
        argparse.ArgumentParser, "print_help", lambda self, file=None: (parsers.append(self), show(self, file))
    )
    with pytest.raises(SystemExit):
        program.main(["--help"])
    return {flag for action in parsers[0]._actions for flag in action.option_strings}


@pytest.fixture(params=["uvicorn", "hypercorn", "granian"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, set[str]]:
    """A server, and all its flags."""
    match request.param:
        case "uvicorn":
            flags = flags_of_click("main", "uvicorn.main")
        case "hypercorn":
            flags = flags_of_hypercorn(monkeypatch)
        case "granian":
            flags = flags_of_click("cli", "granian.cli")
    return request.param, flags


def test_each_flag_of_another_server_is_in_one_of_both_lists(server):
    name, flags = server
    assert len(flags) > 30
    assert sorted((*SAME[name], *ANSWERS[name])) == sorted(flags)


@pytest.mark.parametrize("name", SAME)
def test_what_is_the_same_is_ours_and_what_is_answered_is_not(name):
    assert SAME[name] <= OURS
    assert not ANSWERS[name].keys() & OURS


@pytest.mark.parametrize(("flag", "words"), [row for answers in ANSWERS.values() for row in answers.items()])
def test_an_answer_says_what_to_do_and_names_flags_that_there_are(flag, words):
    assert words.startswith(("use ", "leave it out", "there is none here", "name the app "))
    assert set(re.findall(r"--[a-z0-9-]+", words)) <= OURS
    assert f": {words}" in str(answer(flag))


def test_what_means_several_things_is_answered_for_each_server():
    assert answer("--access-log") == (
        "--access-log is uvicorn's and granian's: use --access-logfile -; hypercorn's: use --access-logfile FILE"
    )
    assert answer("--wrokers") is None
