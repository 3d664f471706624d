"""`stanchion lab`, which is `python -m stanchion.lab`."""

import sys

try:
    from stanchion.lab import command
except ModuleNotFoundError as error:
    sys.exit(f"stanchion: the lab needs {error.name}: pip install 'stanchion[lab]'")

sys.exit(command.main(sys.argv[1:]))
