"""The cases of Autobahn, which `make autobahn` runs."""

import os

collect_ignore = [] if os.environ.get("STANCHION_AUTOBAHN") else ["test_autobahn.py"]
