"""`python -m stanchion`."""

import os
import sys

if __name__ == "__main__":
    # Python has put the working directory first (without -P), and root must import nothing that others may have written
    # there: so before anything else is imported. Where it may, effective.py puts it back.
    # Python 3.10 has no -P, only -I (isolated mode), which implies it.
    if os.geteuid() == 0 and not getattr(sys.flags, "safe_path", sys.flags.isolated):
        del sys.path[0]
    from stanchion.cli import main

    sys.exit(main())
