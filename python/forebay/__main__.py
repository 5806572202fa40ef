"""`python -m forebay`, and the command `forebay`: the binary next to this module takes over."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

BINARY = Path(__file__).with_name("bin") / "forebay"


def main() -> NoReturn:
    if not BINARY.exists():
        sys.exit(f"forebay: {BINARY} is missing: install the package again")
    os.execv(BINARY, ["forebay", *sys.argv[1:]])


if __name__ == "__main__":
    main()
