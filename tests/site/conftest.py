"""The web site of the docs, which `make test-site` makes before."""

import os

collect_ignore = [] if os.environ.get("STANCHION_SITE") else ["test_site.py"]
