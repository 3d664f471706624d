"""A page that shows the line at work: how long each request waited, and what a burst, a kill and a reload do.

stanchion serve --chdir examples/demo --workers 2 --admin 127.0.0.1:9100 app:app
"""

import os
import signal
import threading
import time
from http.client import HTTPConnection

from flask import Flask, Response, jsonify, render_template, request

SLOW_S_MAX = 10.0
BURST_REQUESTS = 40
BURST_SLOW_S = 0.25
BURST_WAIT_S = 60.0

# The app is imported by a child of the master, before the workers are forked.
MASTER = os.getppid()

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
    return render_template("index.html", worker=os.getpid(), wait_ms=wait_ms(), burst=BURST_REQUESTS)


@app.get("/fast")
def fast() -> Response:
    return answer()


@app.get("/slow")
def slow() -> Response:
    """Keep the worker for a while, as a slow database would."""
    seconds = request.args.get("seconds", default=2.0, type=float)
    time.sleep(max(0.0, min(seconds, SLOW_S_MAX)))
    return answer()


@app.post("/burst")
def burst() -> Response:
    """Send slow requests at once. A browser would open only six connections."""
    address = request.environ["SERVER_NAME"], int(request.environ["SERVER_PORT"])
    for _ in range(BURST_REQUESTS):
        threading.Thread(target=one_of_burst, args=address, daemon=True).start()
    return answer()


def one_of_burst(host: str, port: int) -> None:
    connection = HTTPConnection(host, port, timeout=BURST_WAIT_S)
    try:
        connection.request("GET", f"/slow?seconds={BURST_SLOW_S}")
        connection.getresponse().read()
    finally:
        connection.close()


@app.post("/kill")
def kill() -> Response:
    """End this worker by SIGKILL. The client gets 502, and the server forks the next worker."""
    os.kill(os.getpid(), signal.SIGKILL)
    return answer()


@app.post("/reload")
def reload() -> Response:
    """Deploy: the master starts new workers from the code as it is now, and the old ones finish their requests."""
    os.kill(MASTER, signal.SIGHUP)
    return answer()
