"""A page that shows the line at work: who answered, how long each request waited, and what happens when all are busy.

stanchion serve --chdir examples/demo --workers 2 app:app
"""

import os
import time

from flask import Flask, Response, jsonify, render_template, request

SLOW_S_MAX = 10.0

app = Flask(__name__)


def wait_ms() -> float | None:
    """How long this request stood in the line; another server would not tell."""
    wait_s = request.environ.get("stanchion.queue_wait")
    return None if wait_s is None else round(wait_s * 1000, 1)


def answer() -> Response:
    response = jsonify(worker=os.getpid(), wait_ms=wait_ms())
    # Otherwise the browser waits for one answer before it asks for the same address again.
    response.headers["Cache-Control"] = "no-store"
    return response


@app.get("/")
def index() -> str:
    return render_template("index.html", worker=os.getpid(), wait_ms=wait_ms())


@app.get("/fast")
def fast() -> Response:
    return answer()


@app.get("/slow")
def slow() -> Response:
    """Keep the worker for a while, as a slow database would."""
    seconds = request.args.get("seconds", default=2.0, type=float)
    time.sleep(max(0.0, min(seconds, SLOW_S_MAX)))
    return answer()
