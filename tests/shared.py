"""Clusters that one test after the other uses: each worker of pytest has one, and starts another
where a test wants another kind, or where one did not come to be as it was at first."""

from cluster import Cluster, Reading
from harness import Store
from lossy_network import LossyCluster

# Of each log, where a test failed.
LINES = 60


def plain(directory, *kind):
    return Cluster(Store(directory / "store"), directory, *kind)


def weathered_nodes(directory, *kind):
    # A test that begins has a seed of its own.
    return LossyCluster(directory, 0, *kind)


class SharedClusters:
    def __init__(self, new_directory):
        self.new_directory, self.free = new_directory, {}
        self.started = 0

    def take(self, make, *kind):
        """What make(directory, *kind) gives, or gave before: a cluster that is whole and has no
        tables. Tests may stop, kill and start its nodes, and join more; they may not remove those
        that it had."""
        kind = (make, *kind)
        made = self.free.pop(kind, None)
        if not made:
            # Each takes its share of the processors, whether or not a test uses it.
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
        # One test had it for all of its file, and another took a second one meanwhile.
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
