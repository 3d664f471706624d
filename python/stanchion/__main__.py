"""`python -m stanchion`."""

import sys

from stanchion.cli import main

if __name__ == "__main__":
    sys.exit(main())
