"""Small file systems that tests can fill."""

import os
import subprocess
from pathlib import Path


class Disks:
    """One file system per name. A private namespace mounts them without root. They are reached
    through /proc, and end with the process that holds them."""

    def __init__(self, directory, names, mib):
        mounts = []
        for name in names:
            (directory / name).mkdir()
            mounts.append(f"mount -t tmpfs -o size={mib}m small {directory}/{name}")
        script = " && ".join([*mounts, "echo ready", "exec sleep 3600"])
        user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
        words = ["unshare", *user, "--mount", "sh", "-c", script]
        self.holder = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self.holder.stdout.readline() == b"ready\n", "cannot mount a tmpfs in a namespace"
        self.directory = directory

    def __getitem__(self, name):
        return Path(f"/proc/{self.holder.pid}/root{self.directory}/{name}")

    def end(self):
        self.holder.kill()
        self.holder.communicate()


def fill(disk):
    """Writes until no byte is free."""
    with open(disk / "filler", "ab", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass


def make_room(disk):
    (disk / "filler").unlink(missing_ok=True)
