"""A module that its app imports in a request."""

import os

from rendezvous import announce

announce(f"imported {os.getpid()}")
