"""The fixtures of the ordinary tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from conftest import source, store  # noqa: E402, F401
