"""A look that is taken again and again, in a thread of its own, until it is stopped."""

import threading
from collections.abc import Callable


class Sampler:
    """The first look is taken by `start`, the last by `stop`, which raises the error of any look."""

    def __init__(self, look: Callable[[], None], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._failure: Exception | None = None

    def start(self) -> None:
        self._look()
        self._thread.start()

    def _go(self) -> None:
        try:
            while not self._enough.wait(self._every_s):
                self._look()
        except Exception as error:  # noqa: BLE001 - stop() raises it, in its caller's thread
            self._failure = error

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        self._look()
