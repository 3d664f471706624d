"""The server itself, in Rust."""

from typing import Protocol, type_check_only

from stanchion.loader import WSGIApp

__all__ = ["serve", "settings_resolve", "settings_schema"]

@type_check_only
class _Host(Protocol):
    """What the server asks of the Python that hosts it."""

    def load(self) -> WSGIApp:
        """Import the app; raise stanchion.loader.AppLoadError if it is broken."""

    def watched_files(self) -> list[str]:
        """The files whose change calls for a reload."""

def settings_schema() -> str:
    """The table of settings, as a JSON list."""

def settings_resolve(layers: str) -> str:
    """Merge a JSON list of {"origin", "values"}, lowest first, into {"values", "errors", "unknown"}."""

def serve(settings: str, host: _Host) -> int:
    """Run the process tree. Returns, in each process that has to end, its exit code."""
