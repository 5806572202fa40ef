"""`redis-cli -c` as a client of reading.py: one process per command, at each node in turn.

It follows redirects, but never retries, and never asks another node.
"""

import subprocess

from reading import Reading, read

# redis-cli prints this before the answer when it follows a redirect.
REDIRECTED = "-> Redirected to slot"


class Failed(Exception):
    """The command gave no answer."""


def run():
    words = ["redis-cli", "--version"]
    version = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[1]
    reading = Reading("redis-cli -c", version, splits=False)

    def ask(*words):
        host, port = reading.addresses[reading.count % len(reading.addresses)]
        command = ["redis-cli", "-c", "-e", "-h", host, "-p", str(port), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise Failed(" ".join((done.stderr + done.stdout).split()))
        return [line for line in done.stdout.splitlines() if not line.startswith(REDIRECTED)]

    read(reading, lambda key: ask("GET", key)[0], lambda keys: ask("MGET", *keys))


run()
