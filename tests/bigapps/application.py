"""An application that others wrote, as `apps/NAME/app.toml` describes it."""

import os
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDERS = HERE / "apps"
VENVS = Path(os.environ.get("STANCHION_APPS", "/nonexistent"))
"""The folder in which scripts/make-apps has installed them, each in a virtual environment of its own."""

NOT_INSTALLED = "NOT INSTALLED"

KINDS = ("request", "upload", "stream", "websocket")


class Mistake(Exception):
    """A description that nothing can be done with."""


@dataclass(frozen=True)
class Ask:
    """One thing that the client asks of both servers, in the order of the file."""

    what: str
    path: str
    kind: str = "request"
    method: str = ""
    """The method; by default GET, and POST where there is a body."""
    headers: dict[str, str] = field(default_factory=dict)
    json: Any = None
    form: dict[str, str] | None = None
    """Fields of a form; with `file`, of a multipart one."""
    body: str | None = None
    file: dict[str, Any] | None = None
    """A file to upload: `field`, `name`, `type`, and `path` in the home, or `bytes`: how many."""
    status: int | None = None
    """The status that both must answer; by default any below 400."""
    take: dict[str, str] = field(default_factory=dict)
    """Names for later `{name}`: the first group of a pattern in the head or body. Cookies have their own."""
    until: str = ""
    """The client leaves a stream at the first line that matches this pattern, and not before."""
    subprotocols: list[str] = field(default_factory=list)
    send: list[str] = field(default_factory=list)
    hear: int = 1
    """How many messages the client waits for, over a WebSocket."""
    mask: list[str] = field(default_factory=list)
    """Patterns of text that differs from run to run, in this answer only."""
    same_body: bool = True
    """False where the app answers something else each time; then status and fields alone are compared."""


@dataclass(frozen=True)
class Click:
    """In the browser: press the element of a CSS selector, then wait for a text."""

    selector: str
    until: str


@dataclass(frozen=True)
class Page:
    """A page that the browser opens."""

    path: str = "/"
    until: str = ""
    """A text that the page shows once it is whole."""
    click: list[Click] = field(default_factory=list)
    mask: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Application:
    """How an application is prepared and started, and what is asked of it."""

    name: str
    app: str
    """The app's name as gunicorn and stanchion take it; `module:function()` makes the app."""
    usual: list[str]
    """The server of the application's own documents and its flags, without address, workers and app."""
    workers: int = 1
    ours: list[str] = field(default_factory=list)
    """Flags of ours, each one a fault of ours unless the usual server has it too."""
    environment: dict[str, str] = field(default_factory=dict)
    """`{home}` stands for the folder that the server runs in."""
    prepare: list[list[str]] = field(default_factory=list)
    """Commands of its virtual environment, run once in the folder of which each server gets a copy."""
    ready: str = "/"
    """A path that answers 200 within milliseconds: asked first, under load, and for the latency."""
    start_within_s: int = 120
    preloads: bool = True
    """False where its import leaves what no fork takes along, with the reason beside it."""
    mask: list[str] = field(default_factory=list)
    ignored_fields: list[str] = field(default_factory=list)
    page: Page | None = None
    ask: list[Ask] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return FOLDERS / self.name

    @property
    def venv(self) -> Path:
        return VENVS / self.name

    @property
    def missing(self) -> str:
        """Why it cannot be tried here; "" if it can."""
        if (self.venv / "made").exists():
            return ""
        failed = self.venv / "failed"
        return (
            f"{NOT_INSTALLED}: {self.name}, {failed.read_text().strip() if failed.exists() else 'run make test-apps'}"
        )

    def asks(self, kind: str) -> list[Ask]:
        return [ask for ask in self.ask if ask.kind == kind]


def read(name: str, text: str | None = None) -> Application:
    """An application from its file, or from this text."""
    given = tomllib.loads((FOLDERS / name / "app.toml").read_text() if text is None else text)
    asks = [made(Ask, entry, f"{name}: {entry.get('what', 'an ask')}") for entry in given.pop("ask", [])]
    page = given.pop("page", None)
    if page is not None:
        page["click"] = [made(Click, click, f"{name}: a click") for click in page.get("click", [])]
        page = made(Page, page, f"{name}: page")
    application: Application = made(Application, {"name": name, "page": page, "ask": asks, **given}, name)
    for ask in application.ask:
        if ask.kind not in KINDS:
            raise Mistake(f"{name}: {ask.what}: no kind is called {ask.kind!r}")
    doubled = {ask.what for ask in asks if [one.what for one in asks].count(ask.what) > 1}
    if doubled:
        raise Mistake(f"{name}: asks share a name: {sorted(doubled)}")
    return application


def made(kind: Any, given: dict[str, Any], where: str) -> Any:
    """An object of these fields, or a Mistake that says which ones it does not have."""
    strange = given.keys() - {one.name for one in fields(kind)}
    if strange:
        raise Mistake(f"{where}: {sorted(strange)} means nothing here")
    try:
        return kind(**given)
    except TypeError as error:
        raise Mistake(f"{where}: {error}") from None


def names() -> list[str]:
    """All of them in alphabetical order, or those that APPS names in its order."""
    every = sorted(path.parent.name for path in FOLDERS.glob("*/app.toml"))
    chosen = os.environ.get("APPS", "").split()
    strange = set(chosen) - set(every)
    if strange:
        raise Mistake(f"APPS names {sorted(strange)}, of which tests/bigapps/apps has no folder")
    return chosen or every
