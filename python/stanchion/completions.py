"""Completions of the command line for shells, made from the table of settings."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stanchion.commands import FRONTS

if TYPE_CHECKING:
    from stanchion.config import Setting

Commands = Sequence[tuple[str, str, str]]
CheckFlags = Sequence[tuple[str, str]]

_FILES = ("FILE",)
_DIRECTORIES = ("DIR", "DIRS")


class _Flag(NamedTuple):
    """A flag of `serve` and `check`, and what may follow it."""

    word: str
    help: str
    metavar: str
    choices: Sequence[str]


def _flags(rows: Iterable["Setting"]) -> Iterator[_Flag]:
    for row in rows:
        for word in (*row.flags, *row.off_flags):
            yield _Flag(word, row.help, row.metavar, row.choices or ())
    yield _Flag("--help", "Show help", "", ())
    yield _Flag("--dry-run", "Show the settings in effect", "", ())
    yield _Flag("--version", "Print the version", "", ())


def bash(rows: Iterable["Setting"], commands: Commands, check_flags: CheckFlags) -> str:
    """For `source <(stanchion completion bash)`, or a file in bash-completion's directory."""
    flags = list(_flags(rows))
    cases = [f"        {flag.word}) words='{' '.join(flag.choices)}';;" for flag in flags if flag.choices]
    files = "|".join(flag.word for flag in flags if flag.metavar in _FILES)
    directories = "|".join(flag.word for flag in flags if flag.metavar in _DIRECTORIES)
    others = "|".join(
        flag.word for flag in flags if flag.metavar and not flag.choices and flag.metavar not in _FILES + _DIRECTORIES
    )
    return f"""\
_stanchion() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}} words
    COMPREPLY=()
    case $before in
{chr(10).join(cases)}
        {files}) COMPREPLY=($(compgen -f -- "$word")); return;;
        {directories}) COMPREPLY=($(compgen -d -- "$word")); return;;
        {others}) return;;
        completion) ((COMP_CWORD == 2)) && words='{" ".join(SHELLS)}';;
        fleet) ((COMP_CWORD == 2)) && words='{" ".join(FRONTS)}';;
    esac
    if [[ -z $words ]]; then
        if ((COMP_CWORD == 1)) && [[ $word != -* ]]; then
            words='{" ".join(name for name, _, _ in commands)}'
        else
            case $command in
                ctl|top|doctor|plan|lab|completion) return;;
                help) words='{" ".join(flag.word for flag in flags)} {" ".join(name for name, _, _ in commands)}';;
                check) [[ $word == -* ]] && words='{" ".join(flag for flag, _ in check_flags)} ';&
                *) [[ $word == -* ]] && words+='{" ".join(flag.word for flag in flags)}';;
            esac
        fi
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _stanchion stanchion
"""


def zsh(rows: Iterable["Setting"], commands: Commands, check_flags: CheckFlags) -> str:
    """For a file _stanchion in a directory of $fpath, or `source <(stanchion completion zsh)`."""
    specs = [_zsh_spec(flag) for flag in _flags(rows)]
    of_check = [f"'{flag}[{_zsh_text(words)}]'" for flag, words in check_flags]
    described = " ".join(f"'{name}:{_zsh_text(words)}'" for name, _, words in commands)
    return f"""\
#compdef stanchion
_stanchion() {{
    local -a commands flags of_check
    commands=({described})
    flags=(
        {(chr(10) + "        ").join(specs)}
    )
    of_check=({" ".join(of_check)})
    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
        _describe command commands
        return
    fi
    case $words[2] in
        completion) compadd -- {" ".join(SHELLS)};;
        help) compadd -- ${{commands%%:*}} {" ".join(flag.word for flag in _flags(rows))};;
        ctl|top|doctor|plan|lab) _files;;
        fleet) (( CURRENT == 3 )) && compadd -- {" ".join(FRONTS)} || _arguments -s $flags '*:app:';;
        check) _arguments -s $flags $of_check '*:app:';;
        *) _arguments -s $flags '*:app:';;
    esac
}}
if [[ $funcstack[1] == _stanchion ]]; then
    _stanchion "$@"
else
    compdef _stanchion stanchion
fi
"""


def _zsh_spec(flag: _Flag) -> str:
    if not flag.metavar:
        return f"'*{flag.word}[{_zsh_text(flag.help)}]'"
    if flag.choices:
        action = f"({' '.join(flag.choices)})"
    elif flag.metavar in _FILES:
        action = "_files"
    else:
        action = "_directories" if flag.metavar in _DIRECTORIES else " "
    # A long flag takes its value also after an equals sign.
    form = "=" if flag.word.startswith("--") else "+"
    return f"'*{flag.word}{form}[{_zsh_text(flag.help)}]:{flag.metavar}:{action}'"


def _zsh_text(text: str) -> str:
    """Inside single quotes and square brackets, where a colon ends what stands before it."""
    for character in ("\\", "[", "]", ":"):
        text = text.replace(character, f"\\{character}")
    return text.replace("'", "'\\''")


def fish(rows: Iterable["Setting"], commands: Commands, check_flags: CheckFlags) -> str:
    """For a file stanchion.fish in a directory of $fish_complete_path, or `stanchion completion fish | source`."""
    first = "not __fish_seen_subcommand_from " + " ".join(name for name, _, _ in commands)
    serving = "not __fish_seen_subcommand_from ctl top doctor plan lab help completion"
    lines = ["complete -c stanchion -f", "complete -c stanchion -n '__fish_seen_subcommand_from plan' -F"]
    for name, _, words in commands:
        lines.append(f"complete -c stanchion -n '{first}' -a {name} -d {_fish_text(words)}")
    for flag in _flags(rows):
        option = f"-l {flag.word[2:]}" if flag.word.startswith("--") else f"-s {flag.word[1:]}"
        line = f"complete -c stanchion -n '{serving}' {option} -d {_fish_text(flag.help)}"
        if flag.choices:
            line += f" -x -a '{' '.join(flag.choices)}'"
        elif flag.metavar in _FILES:
            line += " -r -F"
        elif flag.metavar in _DIRECTORIES:
            line += " -x -a '(__fish_complete_directories)'"
        elif flag.metavar:
            line += " -x"
        lines.append(line)
    for flag_word, words in check_flags:
        condition = "__fish_seen_subcommand_from check"
        lines.append(f"complete -c stanchion -n '{condition}' -l {flag_word[2:]} -d {_fish_text(words)}")
    lines.append(f"complete -c stanchion -n '__fish_seen_subcommand_from completion' -a '{' '.join(SHELLS)}'")
    lines.append(f"complete -c stanchion -n '__fish_seen_subcommand_from fleet' -a '{' '.join(FRONTS)}'")
    topics = " ".join((*(name for name, _, _ in commands), *(flag.word for flag in _flags(rows))))
    lines.append(f"complete -c stanchion -n '__fish_seen_subcommand_from help' -a '{topics}'")
    return "\n".join(lines) + "\n"


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SHELLS: dict[str, Callable[[Iterable["Setting"], Commands, CheckFlags], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
"""The function that writes the completions of each shell."""
