"""Clusters that tests share, one after another. Each pytest worker has one. It starts another if a
test needs another kind, or if a cluster could not be reset."""

from cluster import Cluster, Reading
from harness import Store
from lossy_network import LossyCluster

# Lines of each log to print after a failed test.
LINES = 60


def plain(directory, *kind):
    return Cluster(Store(directory / "store"), directory, *kind)


def lossy_nodes(directory, *kind):
    # Each test sets its own seed.
    return LossyCluster(directory, 0, *kind)


class SharedClusters:
    def __init__(self, new_directory):
        self.new_directory, self.free = new_directory, {}
        self.started = 0

    def take(self, make, *kind):
        """Returns make(directory, *kind), new or reused: a healthy cluster without tables. Tests
        may stop, kill and start its nodes, and join more. They may not remove its first nodes."""
        kind = (make, *kind)
        made = self.free.pop(kind, None)
        if not made:
            # A running cluster uses processor time even without a test.
            self.end()
            made = self.start(kind)
        for node in made.nodes:
            node.log_mark = node.log.stat().st_size
        return made

    def start(self, kind):
        make, *rest = kind
        made = make(self.new_directory("shared"), *rest)
        made.kind = kind
        self.started += 1
        try:
            made.start()
            return made
        except BaseException:
            made.end()
            raise

    def give_back(self, made, has_failed):
        Reading.end_all()
        if has_failed:
            show_logs(made)
            made.end()
            return
        try:
            made.tidy()
        except BaseException:
            show_logs(made)
            made.end()
            raise
        made.check_logs()
        # One test used this cluster for its whole file, and another test started a second one.
        if made.kind in self.free:
            made.end()
        self.free.setdefault(made.kind, made)

    def end(self):
        for made in self.free.values():
            made.end()
            made.check_logs()
        self.free = {}


def show_logs(made):
    for node in made.nodes:
        lines = node.logged().splitlines() if node.log.exists() else []
        print(f"--- {node.name}, {len(lines)} lines:", *lines[-LINES:], sep="\n")
