"""The logger of hooks, which writes to the server's error log."""

import logging

from stanchion import _stanchion


class _ServerLog(logging.Handler):
    """Its level decides."""

    def emit(self, record: logging.LogRecord) -> None:
        # As the handlers of `logging` do: a line that cannot be written is no reason to fail.
        try:
            _stanchion.log(record.levelno, self.format(record))
        except (KeyError, TypeError, ValueError):
            self.handleError(record)


# Of its own, beside those that the app configures.
LOGGER = logging.Logger("stanchion.hooks")
LOGGER.addHandler(_ServerLog())
