"""Nodes of a cluster of Ray that are lost while tasks work.

What a lost node held is for Ray to compute again. Where that is a block that nobody refers to any
more, Ray waits for it without an end. So a push does not count on it: it watches the nodes that
hold something of it, and begins again with the dataset when one of them is lost.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ._errors import Error

_T = TypeVar("_T")

ATTEMPTS = 4
"""So often a stage is begun, at most."""
LOOK_S = 1.0
"""Between two looks at the nodes."""
PATIENCE_S = 60.0
"""So long a cluster may be without any processor for tasks, or without blocks that it had."""


class NodeLost(Exception):
    """A node was lost that held something of what is under way."""


class Nodes:
    """The nodes that hold something of a push or a load."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._holding: set[str] = set()
        self._looked = self._worked = time.monotonic()

    def hold(self, refs: list[Any], again: bool) -> None:
        """Notes where objects are; `again` says that a node was lost before."""
        if again:
            # Those of a dataset that was computed before are computed again by Ray, or never.
            _, lost = self._ray.wait(
                refs, num_returns=len(refs), timeout=PATIENCE_S, fetch_local=False
            )
            if lost:
                raise NodeLost
        experimental: Any = importlib.import_module("ray.experimental")
        for place in experimental.get_object_locations(refs).values():
            self._holding.update(place["node_ids"])

    def held(self, node: str) -> None:
        """What a task made is on that node."""
        self._holding.add(node)

    def look(self) -> None:
        """Raises something when what is under way cannot finish."""
        now = time.monotonic()
        if now < self._looked + LOOK_S:
            return
        self._looked = now
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        if not self._holding <= {node["NodeID"] for node in alive}:
            raise NodeLost
        if any(node["Resources"].get("CPU", 0) > 0 for node in alive):
            self._worked = now
        elif now > self._worked + PATIENCE_S:
            raise Error(
                "the cluster of Ray has had no node with a processor for tasks for "
                f"{PATIENCE_S:.0f} s; nothing of it is visible"
            )


def surviving(work: Callable[[], _T], lost: Callable[[], object]) -> _T:
    """Does the work, and calls `lost` and does it again when a node was lost."""
    for _ in range(ATTEMPTS):
        try:
            return work()
        except NodeLost:
            lost()
    raise Error(
        f"Ray has lost nodes, or blocks of the dataset with them, {ATTEMPTS} times; nothing of it "
        "is visible. A dataset that was computed before (materialize) is not computed again"
    )
