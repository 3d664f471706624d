"""The app of the fleet: it writes down each execution, by the number that the client has given the request, and sleeps.

Several pods write into one folder of the machine, each process into a file of its own, so the counts outlive the pods.
"""

import os
import socket
import time
from pathlib import Path

COUNTS = Path(os.environ["SHOP_COUNTS"])
SLEEP_S = float(os.environ.get("SHOP_SLEEP_S", "0.05"))
OPEN = COUNTS / "open"
"""A request of /held goes on when the test has made this file."""


def app(environ, start_response):
    """Answer the name of the pod to /sleep/NUMBER, /held/NUMBER and /eat/NUMBER."""
    _, what, number = environ["PATH_INFO"].split("/")
    done = f"{number} {environ['REQUEST_METHOD']}\n".encode()
    file = os.open(COUNTS / f"{socket.gethostname()}-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, done)
    finally:
        os.close(file)
    if what == "held":
        while not OPEN.exists():
            time.sleep(0.1)
    elif what == "eat":
        hoard = []
        while True:
            hoard.append(b"x" * (16 << 20))
    else:
        time.sleep(SLEEP_S)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [socket.gethostname().encode()]
