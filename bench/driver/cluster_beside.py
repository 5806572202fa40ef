"""A script of this folder that runs beside what a block does."""

import json
import subprocess
import sys
from pathlib import Path


class Beside:
    """The script greets with a line when it has begun, and prints what it `found`, as JSON, once its
    input ends."""

    def __init__(self, script: str, greeting: bytes, *words):
        command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, words)]
        self.greeting = greeting
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        assert self.child.stdout.readline() == self.greeting
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.child.kill()
        out, _ = self.child.communicate()
        if not kind:
            self.found = json.loads(out)
