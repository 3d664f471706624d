"""`stanchion help` and `stanchion completion`: words about one thing, the manual page, completions."""

from difflib import get_close_matches

from stanchion import __version__, completions, gunicorn, hooks, manual, usage
from stanchion.commands import CHECK_FLAGS, COMMANDS
from stanchion.config import Setting, schema
from stanchion.effective import UsageError
from stanchion.output import put, show

EXIT_OK = 0


def run(arguments: list[str]) -> int:
    """Explain the named command, flag, setting or hook; without a name show the first page."""
    match arguments:
        case [] | ["-h"] | ["--help"]:
            show(usage.first_page())
        case ["--man"]:
            put(manual.page(schema(), COMMANDS, __version__))
        case [what]:
            show(_about(what))
        case _:
            raise UsageError("help explains one thing at a time: stanchion help WHAT")
    return EXIT_OK


def completion(arguments: list[str]) -> int:
    """Print the completions for one shell."""
    if len(arguments) != 1 or arguments[0] not in completions.SHELLS:
        raise UsageError(f"name a shell, as in `stanchion completion bash`: one of {', '.join(completions.SHELLS)}")
    put(completions.SHELLS[arguments[0]](schema(), COMMANDS, CHECK_FLAGS).rstrip("\n"))
    return EXIT_OK


def _about(what: str) -> str:
    """The explanation of a flag, with or without its dashes, or of a setting or hook."""
    known = _known()
    for name in (what, f"--{what}", what.replace("-", "_")):
        if name in known:
            found = known[name]
            return usage.about(found) if isinstance(found, Setting) else found
    near = get_close_matches(what, known, n=1)
    meant = f"; did you mean {near[0]}?" if near else "; `stanchion help` says what there is"
    raise UsageError(f"there is no command, flag, setting or hook {what!r}{meant}")


def _known() -> dict[str, Setting | str]:
    """The meaning of each name and flag: a setting, or words about something else."""
    known: dict[str, Setting | str] = {}
    for name in sorted(hooks.NAMES):
        arguments = hooks.ARGUMENTS[hooks.ALIASES.get(name, name)]
        known[name] = f"{name}({', '.join(arguments)})\n    A hook: a function of this name in the config file."
    for foreign in gunicorn.FOREIGN:
        for name in (foreign.name, *foreign.flags):
            known[name] = f"{name}\n    {_of_gunicorn(foreign)}"
    for setting in schema():
        for name in (setting.name, *setting.flags, *setting.off_flags):
            known[name] = setting
        for synonym in gunicorn.SYNONYMS:
            if synonym.setting == setting.name:
                known |= dict.fromkeys((synonym.name, *synonym.flags), setting)
    return known


def _of_gunicorn(foreign: gunicorn.Foreign) -> str:
    accepted = [str(value) for value in foreign.same if isinstance(value, str) and value]
    if foreign.refusal is not None and accepted:
        return f"A setting of gunicorn. Accepted: {', '.join(accepted)}. Else it is refused: {foreign.refusal}."
    if foreign.refusal is not None:
        return f"A setting of gunicorn that is refused here: {foreign.refusal}."
    why = foreign.harmless or foreign.instead
    return "A setting of gunicorn that has no meaning here" + (f": {why}." if why else ".")
