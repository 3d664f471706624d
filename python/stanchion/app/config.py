"""The settings of a server that a program makes, as `self.cfg` of an application has them in gunicorn."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stanchion import config, facades, gunicorn, hooks
from stanchion.config import Layer
from stanchion.effective import Effective, UsageError


class Option(NamedTuple):
    """A setting or hook, of those that `Config.settings` lists."""

    name: str
    default: Any
    cfg: "Config"

    def get(self) -> Any:
        """Its value by now."""
        return getattr(self.cfg, self.name)


class Config(facades.Config):
    """The settings of the program, over those of the environment and the defaults."""

    def __init__(self, usage: str | None = None, prog: str | None = None) -> None:
        self.usage = usage
        self.prog = prog
        self._layers: Sequence[Layer] = config.environment_layers(os.environ)
        self._hooks: Mapping[str, hooks.Function] = {}
        self._warnings: list[str] = []
        self._given: dict[str, Any] = {}
        self._objects: Mapping[str, Any] = {}
        rows: dict[str, Any] = {setting.name: setting.default for setting in config.schema()}
        rows |= dict.fromkeys((*hooks.NAMES, *gunicorn.NAMES))
        self.settings = {name: Option(name, default, self) for name, default in rows.items()}
        """Everything that may be set, by its name."""
        super().__init__(self.effective().values)

    def set(self, name: str, value: Any) -> None:
        """Give a setting or a hook its value. AttributeError if there is none of this name, ValueError if it cannot
        have this value.
        """
        if name not in self.settings:
            raise AttributeError(f"there is no setting {name!r}")
        functions, complaints = hooks.find({name: value})
        refusals, ignored = gunicorn.sort_out({name: value})
        if complaints or refusals:
            raise ValueError("\n".join(complaints + refusals))
        self._warnings += [f"no effect in stanchion, ignored: {one}" for one in ignored]
        before = (self._given, self._hooks, self._objects)
        if name in hooks.NAMES:
            self._hooks = {**self._hooks, **functions}
        elif name in gunicorn.NAMES:
            self._given = {**self._given, **gunicorn.translated({name: value})}
        else:
            objects, shown = config.objects_of({name: value})
            self._objects = {**self._objects, **objects}
            self._given = {**self._given, name: value, **shown}
        try:
            self._values = self.effective().values
        except UsageError as error:
            self._given, self._hooks, self._objects = before
            raise ValueError(str(error)) from None

    def warn(self, warnings: Sequence[str]) -> None:
        """Have these said when the server starts."""
        self._warnings += warnings

    def take(
        self,
        layers: Sequence[Layer],
        warnings: Sequence[str],
        functions: Mapping[str, hooks.Function],
        errors: Sequence[str],
        objects: Mapping[str, Any],
    ) -> None:
        """Have these below what is set by name, not the environment's alone. UsageError if they are wrong."""
        self._layers = layers
        self.warn(warnings)
        self._hooks = {**functions, **self._hooks}
        self._objects = {**objects, **self._objects}
        self._values = config.resolve(layers, known=errors).values

    def effective(self) -> Effective:
        """All of it, checked."""
        layers = [*self._layers, Layer("the program", self._given)]
        return config.resolve(layers, self._warnings, self._hooks, objects=self._objects)

    def __getattr__(self, name: str) -> Any:
        if name in hooks.NAMES and "_hooks" in vars(self):
            return self._hooks.get(name)
        return super().__getattr__(name)
