"""The app of Label Studio, whose modules want to be found without the name of their package."""

import sys
from pathlib import Path

import label_studio

sys.path.insert(0, str(Path(label_studio.__file__).parent))

from core.wsgi import application  # noqa: F401
