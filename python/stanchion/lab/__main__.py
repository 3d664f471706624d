"""`stanchion lab`, which is `python -m stanchion.lab`."""

import sys

try:
    from stanchion.lab import command

    code = command.main(sys.argv[1:])  # which imports the rest when it is needed
except ModuleNotFoundError as error:
    sys.exit(f"stanchion: the lab needs {error.name}: pip install 'stanchion[lab]'")

sys.exit(code)
