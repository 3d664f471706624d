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

# A pod listens elsewhere, runs as its image's user, has no files of another machine, and has no secret in arguments.
_OTHERWISE = frozenset(
    ("bind", "admin", "drain_delay", "config", "wsgi_app", "raw_env", "user", "group", "daemon", "pidfile")
)

_NAME_CHARACTERS_MAX = 40


def name_of(name: str | None) -> str:
    """A name for Kubernetes (RFC 1123 section 2.1), of an app the one of its package."""
    package = re.split("[.:]", name or "", maxsplit=1)[0].lower()
    return re.sub("[^a-z0-9]+", "-", package).strip("-")[:_NAME_CHARACTERS_MAX].strip("-") or "app"


def arguments(effective: Effective, port: int, admin_port: int) -> list[str]:
    """The arguments of `serve`."""
    drain_s = float(effective.values["drain_delay"] or DRAIN_S)
    words = ["--bind", f"0.0.0.0:{port}", "--admin", f"0.0.0.0:{admin_port}", "--drain-delay", f"{drain_s:g}"]
    for setting in _set(effective):
        words += _as_flags(setting, effective.values[setting.name])
    app = effective.values["wsgi_app"]
    return [*words, app] if app else words


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
