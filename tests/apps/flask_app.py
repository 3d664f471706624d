"""A Flask app: JSON in and out, a form upload, a streamed answer, a redirect."""

import hashlib
from collections.abc import Iterator

from flask import Flask, Response, redirect, request, url_for


def create_app() -> Flask:
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
