"""`redis-cli -c`, as reading.py says: a process a command, at each node by turns.

It follows redirects and does nothing else: it tries nothing again, and asks no other node.
"""

import subprocess

from reading import Reading, read

# What it prints in front of the answer when it was led on.
LED_ON = "-> Redirected to slot"


class Failed(Exception):
    """The command did not give an answer."""


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
        return [line for line in done.stdout.splitlines() if not line.startswith(LED_ON)]

    read(reading, lambda key: ask("GET", key)[0], lambda keys: ask("MGET", *keys))


run()
