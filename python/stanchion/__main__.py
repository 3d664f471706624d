"""`python -m stanchion`."""

import os
import sys

if __name__ == "__main__":
    # Python has put the working directory first (without -P), and root must import nothing that others may have written
    # there: so before anything else is imported. Where it may, config.py puts it back.
    if os.geteuid() == 0 and not sys.flags.safe_path:
        del sys.path[0]
    from stanchion.cli import main

    sys.exit(main())
