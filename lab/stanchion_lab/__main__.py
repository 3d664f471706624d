"""`stanchion-lab`, which is also `python -m stanchion_lab`, and `stanchion lab` where both are installed."""

import sys

from stanchion_lab import command


def main() -> int:
    return command.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
