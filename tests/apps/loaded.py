"""Announces every load of this module, and with $DIES every worker's end before its first request."""

import os

from hello import app
from rendezvous import announce

announce(f"loaded {os.getpid()}")
if os.environ.get("DIES"):
    os._exit(9)

__all__ = ["app"]
