"""The command `stanchion` as a class to derive from, as `gunicorn.app.wsgiapp` has it."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from stanchion.app.base import Application
from stanchion.effective import UsageError
from stanchion.interfaces import App
from stanchion.loader import load_app, load_paste_app


class WSGIApplication(Application):
    """An application whose app is named: on the command line, in the settings, or by `app_uri`."""

    app_uri: str | None = None

    def init(self, parser: argparse.ArgumentParser, opts: argparse.Namespace, args: Sequence[str]) -> Any:
        """Take the app that the command line names. It replaces the app of an earlier reading."""
        self.app_uri = args[0] if args else type(self).app_uri

    def load_config(self) -> None:
        super().load_config()
        if self.app_uri is None:
            self.app_uri = self.cfg.wsgi_app
        if self.app_uri is None and self.cfg.paste is None:
            raise UsageError("no app to serve: name it, as in MODULE:NAME")

    def load_wsgiapp(self) -> App:
        """Import it."""
        assert self.app_uri is not None, "it is loaded after the settings"
        return load_app(self.app_uri)

    def load_pasteapp(self) -> App:
        """Have PasteDeploy make it."""
        return load_paste_app(self.cfg.paste, self.cfg.raw_paste_global_conf)

    def load(self) -> App:
        return self.load_wsgiapp() if self.cfg.paste is None else self.load_pasteapp()


def run(prog: str | None = None) -> NoReturn:
    """Serve what the command line names."""
    WSGIApplication("%(prog)s [FLAGS] [APP]", prog=prog).run()


if __name__ == "__main__":
    run()
