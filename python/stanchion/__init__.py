"""Stanchion: a pre-forking WSGI and ASGI server that keeps one line of waiting requests."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stanchion.interfaces import App

__version__ = "0.1.0"


def run(app: "App | str", **options: "Any") -> None:
    """Serve `app`, an object or the words `module:attr`, as `uvicorn.run` does: see docs/service-managers.md."""
    # Imported here, since each process of a server imports this package.
    from stanchion.app import like_uvicorn

    like_uvicorn.run(app, **options)
