"""Takes the pictures of the admin page, docs/pictures/admin-{light,dark}.png, of a small server with too much to do."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

SERVER = Path(sys.executable).with_name("stanchion")
LOG_LINES_MAX = 200
ASKING = 18
SEEN_S = 120
"""How long the server has kept a history when the pictures are taken."""
BROWSER_S = 60
APP = """
import random, time

def app(environ, start_response):
    time.sleep(random.choice((0.02, 0.05, 0.4)))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"ok"]
"""
SETTINGS = ("--workers", "4", "--max-waiting", "9", "--lane", "checkout=/cart priority=5", "--bind", "127.0.0.1:0")
SCHEMES = {"light": "1", "dark": "0"}
"""Chromium's numbers for prefers-color-scheme."""


def ask(url: str, number: int, over: threading.Event) -> None:
    """Over and over; a third of the clients always, the others by turns."""
    opener = urllib.request.build_opener()
    while not over.is_set():
        if number >= (time.monotonic() // 20 % 3 + 1) * ASKING / 3:
            over.wait(0.1)
            continue
        try:
            opener.open(url, timeout=30).close()
        except urllib.error.HTTPError:
            over.wait(0.1)  # told 503: the line is full


def addresses(server: "subprocess.Popen[str]") -> tuple[str, str]:
    """Of the app and of the admin listener, as the log tells them."""
    found = []
    assert server.stderr
    for line in (server.stderr.readline() for _ in range(LOG_LINES_MAX)):
        if "listening at http://" in line:
            found.append("http://" + line.split("http://")[1].split()[0])
        if "ready: " in line and len(found) == 2:
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return found[0], found[1]
    raise SystemExit("the server does not come up")


def picture(page: str, scheme: str, home: Path, to: Path) -> None:
    switches = [
        *("headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking", "disable-sync"),
        *(f"user-data-dir={home / scheme}", "window-size=1100,676", "hide-scrollbars", "virtual-time-budget=500"),
        *(f"blink-settings=preferredColorScheme={SCHEMES[scheme]}", f"screenshot={to}"),
    ]
    command = [shutil.which("chromium") or "chromium", *(f"--{switch}" for switch in switches), page]
    # Its temporary files are removed with our folder.
    environment = {**os.environ, "TMPDIR": str(home)}
    subprocess.run(command, check=True, capture_output=True, timeout=BROWSER_S, env=environment)


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    over = threading.Event()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "shop.py").write_text(APP)
        command = [SERVER, "serve", "shop:app", *SETTINGS, "--admin", "127.0.0.2:0", "--chdir", home]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            app, page = addresses(server)
            paths = ["/cart", "/", "/search?q=rope", "/item/7"]
            clients = [
                threading.Thread(target=ask, args=(app + paths[n % 4], n, over), daemon=True) for n in range(ASKING)
            ]
            for client in clients:
                client.start()
            time.sleep(SEEN_S)
            for scheme in SCHEMES:
                picture(page, scheme, home, folder / f"admin-{scheme}.png")
            over.set()
            for client in clients:
                client.join()
            server.terminate()


if __name__ == "__main__":
    main()
