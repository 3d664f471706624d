"""Sets up logging as it likes, before the server or after, and answers with the outcome."""

import json
import logging
import sys
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

logging.basicConfig(stream=sys.stderr, format="of the app: %(message)s", level=logging.WARNING)
BEFORE = list(logging.root.handlers)


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    logging.getLogger("shop").warning("a word at %s", environ["PATH_INFO"])
    answer = {
        "untouched": logging.root.handlers == BEFORE and logging.root.level == logging.WARNING,
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
