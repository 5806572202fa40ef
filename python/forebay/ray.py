"""Datasets of Ray: `forebay.ray.push` publishes one, `forebay.ray.load` loads one.

Tasks of the cluster encode the dataset's blocks and write the table's runs straight into the store;
this process, the driver, gets samples of the keys and one report for each partition. It checks that
together they are the whole dataset. Then it commits, or has a cluster of Forebay's add them to a
live table. See docs/how-to/push-from-ray.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ._driving import check_sampler, drive, drive_load
from ._errors import DataError, Error
from ._load import LoadResult
from ._options import ClusterOptions, TaskLoadOptions
from ._progress import Drawing, drawing
from ._push import PushResult
from ._ray_nodes import NodeLost, Nodes, surviving
from ._sampling import Sampler, chosen
from ._taking import takes
from ._tasks import Source, encoded, failure, of_no_rows, sampled, with_rows, written
from ._watching import POLL_S

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = ["load", "push"]

_T = TypeVar("_T")
_BATCH_ROWS = 10_000


@takes(ClusterOptions)
def push(
    dataset: Dataset,
    table: str,
    *,
    key: str,
    sampler: Sampler = "interval",
    seed: int = 0,
    **options: Unpack[ClusterOptions],
) -> PushResult:
    """Builds a version of a table from a dataset of Ray, by the tasks of its cluster.

    `dataset` is the dataset, `table` (str) the table's name, `key` (str) the template over columns
    that makes keys. The result is that of `forebay.push`, and so are the exceptions. `store` is a
    URL, or a directory that all nodes of the cluster share; tasks find its credentials in their own
    environment. `memory` is of each task that writes.

    The dataset is computed once. Samples, where boundaries are to be found, are taken from its
    blocks: `sampler` ("interval", "random" or "split") and `seed` (int) are those of
    `forebay.spark.push`. Raises TypeError for what is no dataset of Ray.

    >>> people = ray.data.from_items([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
    >>> forebay.ray.push(people, "people", key="{id}", partitions=2, store=store).rows
    2
    """
    _check(dataset)
    check_sampler(sampler)
    draws = drawing(options.pop("progress", None), table)

    def work() -> PushResult:
        job = _Job(dataset, draws)
        return drive(job, table, {"key": key, **options}, "ray.data.Dataset", sampler, seed, draws)

    return _telling("push", work)


@takes(TaskLoadOptions)
def load(
    dataset: Dataset, table: str, *, key: str, **options: Unpack[TaskLoadOptions]
) -> LoadResult:
    """Loads a dataset of Ray into a live table of a cluster, by the tasks of Ray.

    `dataset` is the dataset, `table` (str) the table's name, `key` (str) the template over columns
    that makes keys. It goes as `forebay.spark.load` says. The result is that of `forebay.load`, and
    so are the exceptions. `store` is a URL, or a directory that all machines share; tasks find its
    credentials in their own environment. `memory` is of each task that writes.

    The dataset is computed once, with `plan="auto"` too. Raises TypeError for what is no dataset of
    Ray.

    >>> counts = ray.data.from_items([{"page": "a", "n": 1}, {"page": "b", "n": 2}])
    >>> forebay.ray.load(counts, "clicks", key="{page}", as_="delta", store=store).rows
    2
    """
    _check(dataset)
    draws = drawing(options.pop("progress", None), table)

    def work() -> LoadResult:
        return drive_load(_Job(dataset, draws), table, key, options, "ray.data.Dataset", draws)

    return _telling("load", work)


def _check(dataset: Any) -> None:
    if not isinstance(dataset, importlib.import_module("ray.data").Dataset):
        raise TypeError(
            f"{type(dataset).__module__}.{type(dataset).__name__} is no dataset of Ray; "
            "forebay.push and forebay.load take data frames, and whatever else speaks Arrow"
        )


def _telling(what: str, work: Callable[[], _T]) -> _T:
    """Does the work of a push or a load; what Ray fails with comes in the words of this package."""
    errors: Any = importlib.import_module("ray.exceptions")
    try:
        return work()
    except errors.RayError as error:
        # A task's traceback comes as text. What was raised stands first below the indented lines.
        lines = str(error).splitlines() or [type(error).__name__]
        below = lines[1:] if isinstance(error, errors.RayTaskError) else []
        summary = next((line for line in below if line[:1].strip()), lines[0])
        raise failure("Ray", what, str(error), summary) from error


class _Job:
    """What Ray does for a push or a load."""

    def __init__(self, dataset: Any, draws: Drawing | None) -> None:
        self._ray: Any = importlib.import_module("ray")
        self._draws = draws
        self.by_age = False
        self._nodes = Nodes(self._ray)
        self._lost = 0
        self._blocks: list[Any] | None = None
        self._rows = 0
        self._dataset, self.schema = dataset, _schema(dataset)
        if self.schema is None:
            # Blocks are data frames of pandas.
            self._dataset = dataset.map_batches(_same, batch_format="pyarrow", batch_size=None)
            self.schema = _schema(self._dataset)
        if self.schema is None:
            raise DataError("the dataset has no rows, so its columns are not known")

    def _sources(self, recipe: bytes) -> list[tuple[Source, Any]]:
        """The blocks, computed once, unless a node was lost. Their places show which of two rows is
        the first."""
        if self._blocks is None:
            options = self._dataset.context.execution_options
            before = options.preserve_order
            options.preserve_order = before or self.by_age
            try:
                bundles = list(self._dataset.iter_internal_ref_bundles())
            finally:
                options.preserve_order = before
            self._blocks = [ref for bundle in bundles for ref in bundle.block_refs]
            self._rows = sum(bundle.num_rows() for bundle in bundles)
            self._nodes.hold(self._blocks, again=self._lost > 0)
        blocks = enumerate(self._blocks)
        return [(Source(recipe, number), block) for number, block in blocks]

    def _forget(self) -> None:
        """After a node was lost, all is done again."""
        self._blocks, self._nodes = None, Nodes(self._ray)
        self._lost += 1

    def samples(self, recipe: bytes, sampler: Sampler, seed: int) -> tuple[Any, int]:
        pa: Any = importlib.import_module("pyarrow")

        def work() -> list[Any]:
            task = self._ray.remote(_sample)
            refs = [task.remote(*source, sampler, seed) for source in self._sources(recipe)]
            results = self._results("sampling", refs)
            return [batch for batches, _ in results for batch in batches]

        found = surviving(work, self._forget)
        return (pa.Table.from_batches(found) if found else None), self._rows

    def reports(self, recipe: bytes, partitions: int) -> list[str]:
        return surviving(lambda: self._reports(recipe, partitions), self._forget)

    def _reports(self, recipe: bytes, partitions: int) -> list[str]:
        task = self._ray.remote(_encode).options(num_returns=1 + partitions)
        refs = [task.remote(*source, partitions) for source in self._sources(recipe)]
        if not refs:
            return list(of_no_rows(recipe))
        # A block may go when it has been encoded.
        self._blocks = None
        counts = self._results("encoding", [counted for counted, *_ in refs])
        for node, _ in counts:
            self._nodes.held(node)
        rows = sum(rows for _, rows in counts)
        if rows != self._rows:
            raise Error(f"Ray reported {self._rows} rows and gave {rows}; nothing of it is visible")
        # Partition by partition; its pieces in the order of the blocks.
        pieces = zip(*(parts for _, *parts in refs), strict=True)
        task = self._ray.remote(_write)
        refs = [task.remote(recipe, list(of_one)) for of_one in pieces]
        return [report for reports, _ in self._results("building", refs) for report in reports]

    def _results(self, stage: str, refs: list[Any]) -> list[Any]:
        """What tasks give: something, and the number of their rows. When one fails, or this wait is
        broken off, the others are stopped."""
        waiting = refs
        try:
            if self._draws is not None:
                self._draws.stage(stage, self._rows, "rows")
            while waiting:
                self._nodes.look()
                ended, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=POLL_S)
                rows = sum(rows for _, rows in self._ray.get(ended))
                if self._draws is not None and rows > 0:
                    self._draws.advance(rows)
            return self._ray.get(refs)
        except BaseException as error:
            for ref in waiting:
                self._ray.cancel(ref)
            # What Ray has given up before it has called the node dead.
            if isinstance(error, self._ray.exceptions.ObjectLostError):
                raise NodeLost from error
            raise


def _same(rows: Any) -> Any:
    return rows


def _schema(dataset: Any) -> Any:
    """The schema, where the dataset's blocks are Arrow's."""
    schema = dataset.schema()
    base = None if schema is None else schema.base_schema
    return base if hasattr(base, "__arrow_c_schema__") else None


def _sample(source: Source, block: Any, sampler: Sampler, seed: int) -> tuple[list[Any], int]:
    batches = with_rows(block.to_batches(max_chunksize=_BATCH_ROWS))
    rows = chosen(sampler, source.number, seed, batches)
    return list(sampled(source, rows)), block.num_rows


def _encode(source: Source, block: Any, partitions: int) -> list[Any]:
    """The node that has them and the number of rows, and the bunches of each partition, in the
    order of the rows."""
    ray: Any = importlib.import_module("ray")
    pa: Any = importlib.import_module("pyarrow")
    pc: Any = importlib.import_module("pyarrow.compute")
    numpy: Any = importlib.import_module("numpy")
    read: list[int] = []
    batches = encoded(source, block.to_batches(max_chunksize=_BATCH_ROWS), read.append)
    records = pa.Table.from_batches(batches).combine_chunks()
    sorted_rows = pc.sort_indices(records["partition"])
    counts = numpy.bincount(records["partition"].to_numpy(), minlength=partitions)
    pieces: list[Any] = [(ray.get_runtime_context().get_node_id(), sum(read))]
    first = 0
    for count in counts.tolist():
        pieces.append(records.take(sorted_rows.slice(first, count)))
        first += count
    return pieces


def _write(recipe: bytes, pieces: list[Any]) -> tuple[list[str], int]:
    """Builds one partition. Pieces are fetched one by one: all of them may not fit."""
    ray: Any = importlib.import_module("ray")
    built: list[int] = []
    batches = (batch for piece in pieces for batch in ray.get(piece).to_batches())
    return list(written(recipe, None, batches, built.append)), sum(built)
