"""An import that raises $FOUL, which is no text for a terminal."""

import os

raise ValueError(os.environ["FOUL"] + "\nof two lines" + os.environ["FOUL"])
