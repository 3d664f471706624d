"""The recipe that many Flask apps have: the app's logger takes gunicorn's handlers and its level."""

import logging
import logging.config
import os

from flask import Flask, request

app = Flask(__name__)
borrowed = logging.getLogger("gunicorn.error")
app.logger.handlers = borrowed.handlers
app.logger.setLevel(os.environ.get("LEVEL") or borrowed.level)
if "FORMAT" in os.environ:
    for handler in borrowed.handlers:
        handler.setFormatter(logging.Formatter(os.environ["FORMAT"]))


@app.get("/log")
def log() -> str:
    app.logger.debug("a debug line")
    app.logger.info("an info line with %s", request.args.get("name", "nothing"))
    app.logger.warning("a warning\nof two lines")
    try:
        raise RuntimeError("as it was meant")
    except RuntimeError:
        app.logger.exception("an exception")
    borrowed.info("straight to it")
    logging.getLogger("gunicorn.error.child").info("by a child of it")
    logging.getLogger("gunicorn.access").info("an access line of the app's")
    borrowed.critical("the last line")
    return str(os.getpid())


@app.get("/disable")
def disable() -> str:
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})
    return str(borrowed.disabled)


@app.get("/fail")
def fail() -> str:
    return {}[request.args["key"]]
