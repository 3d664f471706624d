"""Logs by loggers of its own and by gunicorn's, and sets up nothing itself."""

import logging
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

logging.getLogger("shop").info("imported")


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    logging.getLogger("shop").info("sold at %s", path)
    logging.getLogger("shop").debug("too quiet")
    logging.getLogger("gunicorn.error").warning("borrowed at %s", path)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"sold"]
