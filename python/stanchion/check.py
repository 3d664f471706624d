"""`stanchion check`: the effective settings, and whether the app can be loaded with them."""

from stanchion import _stanchion, usage
from stanchion.configuration import Configuration
from stanchion.effective import EXIT_USAGE, Effective, UsageError
from stanchion.loader import AppHost, AppLoadError, describe_failure
from stanchion.output import as_json as written_as_json
from stanchion.output import complain
from stanchion.output import show as show_text
from stanchion.serving import warn

# As `serve` ends then.
EXIT_APP = 4

# As gunicorn --check-config ends, whatever is wrong.
EXIT_GUNICORN = 1


def show(effective: Effective, as_json: bool, changed: bool) -> None:
    """Print every setting with its value and origin, or only those that are not the default."""
    names = [name for name, origin in effective.origins.items() if not changed or origin != "default"]
    if as_json:
        show_text(written_as_json({name: _described(effective, name) for name in names}, indent=2))
        return
    show_text(usage.table(effective, names) if names else "Every setting has its default value.")
    if workers := _stanchion.auto_workers(effective.json):
        show_text(f"\nworkers: auto is {workers}")
    if not changed:
        show_text(usage.privileges(_privileges(effective)))


def credentials(effective: Effective) -> int:
    """Open certificates and keys as `serve` would, and say why if that fails, or what clients will not like of them."""
    try:
        warn(_stanchion.check_credentials(effective.json))
    except ValueError as error:
        complain(f"stanchion: {error}")
        return EXIT_USAGE
    return 0


def load(configuration: Configuration, host: AppHost) -> int:
    """Load the app as `serve` would, as the user it is to run as, and print the reason if that fails."""
    effective = configuration.effective
    configuration.apply()
    try:
        _stanchion.become_app(effective.json)
    except ValueError as error:
        complain(f"stanchion: the app cannot be loaded: {error}")
        return EXIT_APP
    try:
        host.load()
    # The settings of logging are applied just before the app is imported: report what they lack as the template does.
    except (AppLoadError, UsageError) as error:
        complain(describe_failure(error))
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_APP
    return 0


def as_gunicorn(configuration: Configuration, host: AppHost) -> int:
    """gunicorn's --check-config and --print-config: 0 if the app could be served."""
    effective = configuration.effective
    if effective.values["print_config"]:
        show_text(usage.plain_table(effective))
    return EXIT_GUNICORN if credentials(effective) or load(configuration, host) else 0


def _described(effective: Effective, name: str) -> dict[str, object]:
    return {"value": usage.without_secrets(name, effective.values[name]), "origin": effective.origins[name]}


def _privileges(effective: Effective) -> list[tuple[str, str]] | str:
    """The privileges of each process. If this user may not start the server, no setting is wrong: give the reason."""
    try:
        return _stanchion.privileges(effective.json)
    except ValueError as error:
        return str(error)
