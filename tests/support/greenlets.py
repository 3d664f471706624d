"""Servers that run WSGI apps under gevent: stanchion, and gunicorn, for which most such apps are written."""

from support.server import GUNICORN, STANCHION, Kind

GEVENT = ("-k", "gevent")

GUNICORN_GEVENT = Kind("gunicorn-gevent", (*GUNICORN.command, *GEVENT), GUNICORN.listening, GUNICORN.ready)
STANCHION_GEVENT = Kind("stanchion", (*STANCHION.command, *GEVENT), STANCHION.listening, STANCHION.ready)
BOTH = {kind.name: kind for kind in (STANCHION_GEVENT, GUNICORN_GEVENT)}
