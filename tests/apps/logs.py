"""Apps that log, each in a way of its own."""

import json
import logging
import sys
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

logging.getLogger("shop").info("imported")


def configured(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Logs by loggers of its own and by gunicorn's, and sets up nothing itself."""
    path = environ["PATH_INFO"]
    logging.getLogger("shop").info("sold at %s", path)
    logging.getLogger("shop").debug("too quiet")
    logging.getLogger("gunicorn.error").warning("borrowed at %s", path)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"sold"]


def set_up() -> WSGIApplication:
    """Sets up logging, and makes an app that answers with what has become of that in the server."""
    logging.basicConfig(stream=sys.stderr, format="of the app: %(message)s", level=logging.WARNING)
    before = list(logging.root.handlers)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        logging.getLogger("shop").warning("a word at %s", environ["PATH_INFO"])
        answer = {
            "untouched": logging.root.handlers == before and logging.root.level == logging.WARNING,
            "with handlers": [
                name
                for name, logger in logging.root.manager.loggerDict.items()
                if isinstance(logger, logging.Logger) and logger.handlers
            ],
            "lastResort": logging.lastResort is not None,
            "disabled": logging.root.manager.disable,
        }
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]

    return app
