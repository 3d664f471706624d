"""Apps of Flask."""

import hashlib
import logging
import logging.config
import os
from collections.abc import Iterator

from flask import Flask, Response, redirect, request, url_for


def create_app() -> Flask:
    """JSON in and out, a form upload, a streamed answer, a redirect."""
    app = Flask(__name__)

    @app.get("/")
    def index() -> str:
        return f"hello {request.args.get('name', 'nobody')}"

    @app.post("/json")
    def json() -> dict[str, object]:
        return {"got": request.get_json()}

    @app.post("/upload")
    def upload() -> str:
        return hashlib.sha256(request.files["file"].read()).hexdigest()

    @app.get("/stream")
    def stream() -> Response:
        def lines() -> Iterator[str]:
            for number in range(3):
                yield f"{number}\n"

        return Response(lines(), mimetype="text/plain")

    @app.get("/away")
    def away() -> Response:
        return redirect(url_for("index", _external=True))  # type: ignore[return-value]

    @app.get("/fails")
    def fails() -> str:
        raise RuntimeError("flask view fails")

    return app


app = create_app()


def create_borrowing() -> Flask:
    """The recipe that many Flask apps have: the app's logger takes gunicorn's handlers and its level."""
    app = Flask("borrowing")
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

    return app
