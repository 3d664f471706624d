"""A page in Chromium, led by the DevTools protocol over two pipes: what it shows, loads and complains of.

Messages are JSON, each with a zero byte behind it (Chromium's `--remote-debugging-pipe`: it reads descriptor 3 and
writes 4). So no port is open that anything else could speak to.
"""

import json
import os
import re
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.chromium import BROWSER_PATIENCE_S, browser

# The shell gives the two ends of our pipes the numbers that Chromium expects.
RENUMBERED = 'r=$1 w=$2; shift 2; exec "$@" 3<&"$r" 4>&"$w"'

READ_BYTES = 1 << 16
QUIET_S = 0.5
"""A page has settled when its text has been the same for so long, and nothing is being loaded."""
LOOK_EACH_S = 0.1

TEXT = """(() => {
  const text = node => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    if (/^(SCRIPT|STYLE|NOSCRIPT|TEMPLATE)$/.test(node.nodeName)) return '';
    const roots = node.shadowRoot ? [node.shadowRoot, ...node.childNodes] : [...node.childNodes];
    return roots.map(text).join(' ');
  };
  return document.body ? text(document.body) : '';
})()"""
"""All text, also what components keep in shadow roots, which `innerText` leaves out."""


class Tab:
    """One page. `errors` are those of its console, `loaded_bytes` what came over the network, heads included."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._buffer = b""
        self._last_id = 0
        self._session = ""
        self._answers: dict[int, dict[str, Any]] = {}
        self._loading: set[str] = set()
        self.errors: list[str] = []
        self.loaded_bytes = 0

    def open(self, url: str) -> None:
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self._call(f"{domain}.enable")
        said = self._call("Page.navigate", url=url).get("errorText")
        assert not said, f"{url}: {said}"

    def settled(self, until: str, within_s: float = BROWSER_PATIENCE_S) -> str:
        """The text of the page once it has `until` in it and changes no more; whatever it shows when the time is up."""
        deadline = time.monotonic() + within_s
        text, since = "", time.monotonic()
        while time.monotonic() < deadline:
            now = self.text()
            if now != text or self._loading:
                text, since = now, time.monotonic()
            elif until in text and time.monotonic() - since > QUIET_S:
                break
            self._take_in(LOOK_EACH_S)
        return text

    def text(self) -> str:
        return re.sub(r"\s+", " ", str(self.evaluate(TEXT) or "")).strip()

    def click(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def emulate(self, width: int, height: int, scheme: str) -> None:
        """Be as wide as this, also where no window can be, and `light` or `dark`."""
        mobile = width < height
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=mobile)
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer.get("result", {}).get("value")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        # A pipe whose reader is slow takes a part only.
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write_fd, data) :]
        deadline = time.monotonic() + BROWSER_PATIENCE_S
        while self._last_id not in self._answers:
            assert time.monotonic() < deadline, f"the browser does not answer {method}"
            self._take_in(LOOK_EACH_S)
        answer = self._answers.pop(self._last_id)
        # While one page follows another there is none to ask.
        assert "error" not in answer or method == "Runtime.evaluate", f"{method}: {answer['error']}"
        result: dict[str, Any] = answer.get("result", {})
        return result

    def _take_in(self, within_s: float) -> None:
        if not select.select([self._read_fd], [], [], within_s)[0]:
            return
        data = os.read(self._read_fd, READ_BYTES)
        assert data, "the browser has ended"
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for message in messages:
            self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            return
        method, said = message["method"], message.get("params", {})
        if method == "Network.requestWillBeSent" and said.get("type") not in ("EventSource", "Ping"):
            self._loading.add(said["requestId"])
        elif method in ("Network.loadingFinished", "Network.loadingFailed"):
            self._loading.discard(said["requestId"])
            self.loaded_bytes += int(said.get("encodedDataLength", 0))
        elif complaint := complained(method, said):
            self.errors.append(complaint)


def complained(method: str, said: dict[str, Any]) -> str:
    """The fault that an event reports; "" if none."""
    if method == "Runtime.consoleAPICalled" and said["type"] == "error":
        return " ".join(str(one.get("value", one.get("description", ""))) for one in said["args"])
    if method == "Runtime.exceptionThrown":
        details = said["exceptionDetails"]
        return str(details.get("exception", {}).get("description", details["text"]))
    if method == "Log.entryAdded" and said["entry"]["level"] == "error":
        return f"{said['entry']['text']} {said['entry'].get('url', '')}".strip()
    return ""


@contextmanager
def tab(url: str) -> Iterator[Tab]:
    """A browser with nothing but this page."""
    theirs_read, ours_write = os.pipe()
    ours_read, theirs_write = os.pipe()
    theirs = (theirs_read, theirs_write)
    shell = ["bash", "-c", RENUMBERED, "renumbered", str(theirs_read), str(theirs_write)]
    try:
        with browser("about:blank", "remote-debugging-pipe", "window-size=1200,900", prefix=shell, pass_fds=theirs):
            for fd in theirs:
                os.close(fd)
            theirs = ()
            page = Tab(ours_read, ours_write)
            page.open(url)
            yield page
    finally:
        for fd in (*theirs, ours_read, ours_write):
            os.close(fd)
