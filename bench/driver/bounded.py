"""Clusters whose nodes have a bounded share of the processor and of the network, so that they are what takes the time."""

import contextlib
import os
from pathlib import Path

import cluster_places
from common import Failed

#: A node's processor time is counted out so often at least: not to stand still for long at a time.
PERIOD_US = 10_000
#: The kernel counts out no less than this at a time: a small share has a longer period.
LEAST_US = 1000
#: What a node counts beside another process (1024) where both want a core.
SHARES = 20_000
CGROUP = Path("/sys/fs/cgroup/cpu")


class Bounded:
    """A control group of the processor for each node. Raises Failed where none can be made."""

    def __init__(self, core: float):
        self.core, self.groups = core, []
        self.period_us = max(PERIOD_US, -int(-LEAST_US // core))

    def hold(self, name: str, pid: int) -> None:
        group = CGROUP / f"forebay-bench-{os.getpid()}-{name}"
        try:
            group.mkdir()
            self.groups.append(group)
            (group / "cpu.cfs_period_us").write_text(str(self.period_us))
            (group / "cpu.cfs_quota_us").write_text(str(int(self.period_us * self.core)))
            # It gets its part, whatever else runs.
            (group / "cpu.shares").write_text(str(SHARES))
            (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise Failed(
                f"no control group of the processor can be made under {CGROUP} ({error}): nodes cannot be bounded here, and without that the loading "
                "command or the clients would be what takes the time"
            ) from error

    def end(self) -> None:
        for group in self.groups:
            with contextlib.suppress(OSError):
                group.rmdir()


@contextlib.contextmanager
def bounded_cluster(count: int, core: float, pull_rate: str, prepare=None, more: tuple = ()):
    """Nodes of one zone, over a store in a directory. Each has so much of a core, from when the cluster is up and
    `prepare(cluster)` has ended."""
    bounded = Bounded(core)
    try:
        with cluster_places.directory_cluster(count, 1, True, ("--pull-rate", pull_rate, "--threads", "1", *more)) as made:
            if prepare:
                prepare(made)
            for node in made.nodes:
                bounded.hold(node.name, node.process.pid)
            yield made
    finally:
        bounded.end()
