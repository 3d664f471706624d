"""Servers that run WSGI apps under gevent: stanchion, and gunicorn, for which most such apps are written."""

from dataclasses import replace

from support.server import GUNICORN, STANCHION, Kind

GEVENT = ("-k", "gevent")

GUNICORN_GEVENT = Kind(
    "gunicorn-gevent",
    (*GUNICORN.command, *GEVENT),
    GUNICORN.listening,
    GUNICORN.ready,
    STANCHION.arguments,
)
STANCHION_GEVENT = replace(STANCHION, command=(*STANCHION.command, *GEVENT))
BOTH = {kind.name: kind for kind in (STANCHION_GEVENT, GUNICORN_GEVENT)}
