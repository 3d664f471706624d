"""Stanchion: a pre-forking WSGI and ASGI server that keeps one line of waiting requests."""

__version__ = "0.1.0"
