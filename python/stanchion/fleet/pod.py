"""A server in a pod of Kubernetes: its name, and the arguments that give it the settings in force."""

import re
from collections.abc import Iterator
from typing import Any

from stanchion import config
from stanchion.effective import Effective
from stanchion.output import written

FRONTS = ("k8s", "keda")
"""For pods, whose addresses no file has."""

PORT = 8000
"""Where a pod answers clients, unless the settings say it."""

ADMIN_PORT = 8299
"""Where the admin listener of a pod is, unless the settings say it."""

DRAIN_S = 5.0
"""How long a pod goes on accepting, unless the settings say it."""

# A pod listens elsewhere, runs as its image's user, and has no secret in arguments.
_OTHERWISE = frozenset(
    ("bind", "admin", "drain_delay", "config", "wsgi_app", "raw_env", "user", "group", "daemon", "pidfile")
)

# Their paths are those of the machine that has the settings.
_OF_FILES = frozenset(
    [
        *("certfile", "keyfile", "ca_certs", "acme_challenge_dir", "tmp_upload_dir", "control", "chdir", "pythonpath"),
        *("reload_extra_files", "static_files", "accesslog", "errorlog", "logconfig", "logconfig_json", "paste"),
        "record_arrivals",
    ]
)

_NAME_CHARACTERS_MAX = 40

# YAML takes them for something else than text.
_WORDS_OF_YAML = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))


def name_of(name: str | None) -> str:
    """A name for Kubernetes: the package of an app. The name of a Service begins with a letter (RFC 1035)."""
    package = re.split("[.:]", name or "", maxsplit=1)[0].lower()
    plain = re.sub("[^a-z0-9]+", "-", package).strip("-")
    if not plain[:1].isalpha() or plain in _WORDS_OF_YAML:
        plain = f"app-{plain}".strip("-")
    return plain[:_NAME_CHARACTERS_MAX].strip("-")


def arguments(effective: Effective, port: int, admin_port: int) -> list[str]:
    """The arguments of `serve`."""
    words = ["--bind", f"0.0.0.0:{port}", "--admin", f"0.0.0.0:{admin_port}"]
    words += ["--drain-delay", f"{drain_s(effective):g}"]
    for setting in _set(effective):
        words += _as_flags(setting, effective.values[setting.name])
    app = effective.values["wsgi_app"]
    return [*words, app] if app else words


def drain_s(effective: Effective) -> float:
    """How long it goes on accepting: 0 only if the settings say so."""
    return DRAIN_S if effective.origins["drain_delay"] == "default" else float(effective.values["drain_delay"])


def files(effective: Effective) -> list[str]:
    """Settings in force that name files, which the pod's image or a volume must have."""
    names = [setting.name for setting in _set(effective) if setting.name in _OF_FILES]
    return [name for name in names if effective.values[name] not in (None, "", "-", [])]


def unsaid(effective: Effective) -> list[str]:
    """Settings, hooks and objects that no argument says: the pod needs a config file or variables for them."""
    names = [setting.name for setting in _set(effective) if not setting.flags]
    return [*names, *effective.hooks, *effective.objects, *(["raw_env"] if effective.values["raw_env"] else [])]


def _set(effective: Effective) -> Iterator[config.Setting]:
    for setting in config.schema():
        if effective.origins[setting.name] != "default" and setting.name not in _OTHERWISE:
            yield setting


def _as_flags(setting: config.Setting, value: Any) -> list[str]:
    flags = setting.off_flags if value is False else setting.flags
    flag = next((flag for flag in flags if flag.startswith("--")), None)
    if flag is None or value is None:
        return []
    if isinstance(value, bool):
        return [flag]
    each = value if isinstance(value, list) else [value]
    return [word for one in each for word in (flag, written(one, setting.kind))]
