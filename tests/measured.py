"""The commit and the build that a page of results names."""

import os
import subprocess
from pathlib import Path

from harness import BINARY


def commit():
    words = ["git", "rev-parse", "--short", "HEAD"]
    seen = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parent)
    return seen.stdout.strip()


def build():
    """release or debug. For another binary, FOREBAY_BUILD names the build."""
    at = Path(BINARY).parent
    return at.name if "target" in at.parts else os.environ.get("FOREBAY_BUILD", "")
