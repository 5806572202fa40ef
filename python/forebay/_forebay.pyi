"""The extension module; see ../src. What it has is for the package's own use."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Self, TypeVar, overload

from ._progress import Drawing

_Key = str | bytes | int
_Keys = Iterable[_Key] | Iterable[Any]
_Ttl = float | timedelta | str
_Default = TypeVar("_Default")

version: str

def is_forked() -> None:
    """Told in each child of a fork."""

def key_bytes(key: _Key) -> bytes:
    """What a key is in a table."""

def all_key_bytes(keys: _Keys) -> list[bytes]:
    """The same of many, as `RawTable.get_many` takes them."""

def command(
    words: list[str],
    data: object | None = None,
    name: str = "data",
    rows: int | None = None,
    listener: Drawing | None = None,
) -> tuple[bool, str, list[str]]: ...

class RawStore:
    def __new__(cls, url: str, create: bool = False, memory_bytes: int | None = None) -> Self: ...
    @property
    def url(self) -> str:
        """The store's directory or URL."""

    @property
    def memory_bytes(self) -> int | None:
        """What its live tables may use for what is not written yet, as it was asked for."""

    def open_url(self) -> str:
        """The store's directory or URL; an error once it is closed."""

    def is_live(self, name: str) -> bool:
        """Whether a table is live."""

    def close_table(self, name: str) -> None:
        """Closes the live table of that name, if it is open here."""

    def close(self) -> None:
        """Closes all live tables that are open here."""

class RawTable:
    def __new__(cls, store: RawStore, target: str) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int | None:
        """The version that is read; None where the table is live."""

    @property
    def rows_between(self) -> tuple[int, int]:
        """The least and the greatest possible number of rows."""

    @property
    def order(self) -> str:
        """`hashed` or `ordered`."""

    @property
    def kind(self) -> str:
        """What values are: `bytes`, `number`, `row` or `list`."""

    @property
    def key_template(self) -> str: ...
    @property
    def columns(self) -> list[tuple[str, str]]:
        """Names and Arrow types."""

    @overload
    def get(self, key: _Key, default: None = None) -> Any:
        """The value of a key; `default` where it is absent."""

    @overload
    def get(self, key: _Key, default: _Default) -> Any | _Default: ...
    def __getitem__(self, key: _Key) -> Any: ...
    def __contains__(self, key: _Key) -> bool: ...
    @overload
    def get_many(self, keys: _Keys, default: None = None) -> list[Any]:
        """The values of many keys, in their order; `default` for one that is absent.

        The keys are a list, or whatever else can be looped over, or a column of NumPy, pandas,
        pyarrow or polars.
        """

    @overload
    def get_many(self, keys: _Keys, default: _Default) -> list[Any | _Default]: ...
    def get_many_arrow(
        self, keys: _Keys, columns: Sequence[str] | None = None, *, binary: bool = False
    ) -> Any:
        """The values of many keys as a table of pyarrow, with a row a key, in their order.

        It has the columns of a scan, or those that `columns` names; all are null where a key is
        absent. With `binary` a column of keys is bytes.
        """

    def count(self) -> int:
        """How many records there are now, by a look at each where that is not known."""

    def scan(
        self,
        start: _Key | None = None,
        end: _Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        binary: bool = False,
        columns: Sequence[str] | None = None,
    ) -> RawScan:
        """The records from `start` to before `end`, as an Arrow stream, and to loop over.

        Only ordered tables have ranges. A live table is read as it is now, however long that takes.
        With `binary` keys are bytes. `columns` names those of the stream, and of the rows that are
        looped over.
        """

    def put(self, key: _Key, value: Any, *, ttl: _Ttl | None = None) -> None:
        """Sets a key's value in a live table; durable when it returns, as the table promises.

        `ttl` says how long it lasts: seconds, a timedelta, or text as in "12h"; without it, as the
        table says. Tables made with `ttl="never"` take none, nor do those with
        deltas that were made without.
        """

    def insert(self, key: _Key, value: Any, *, ttl: _Ttl | None = None) -> None:
        """Sets a key's value if the key is absent."""

    def delta(self, key: _Key, delta: Any, *, ttl: _Ttl | None = None) -> None:
        """Adds to a key's value, by the table's kind of deltas; how long it lasts is set anew."""

    def ttl(self, key: _Key) -> float | None:
        """For how many seconds more a key lasts, None for one that does not expire.

        An absent key is a KeyError."""

    def delete(self, key: _Key) -> None:
        """Removes a key."""

    def write_many(
        self,
        writes: Iterable[tuple[str, _Key, Any] | tuple[str, _Key, Any, _Ttl | None]],
        atomic: bool,
    ) -> int:
        """Does operations: `put`, `insert`, `delta` or `delete`, key, value, time to live."""

    def flush(self) -> None:
        """Writes all that is in memory to runs."""

    def optimize(self) -> None:
        """Flushes, then merges each partition's runs into one."""

    def verify_live(self) -> tuple[int, list[str]]: ...
    def live_stats(self) -> tuple[list[int], int, int, int]: ...
    def go_to(self, store: RawStore, target: str) -> bool: ...
    def close(self) -> None:
        """Closes a live table, which other processes may open then."""

class RawScan:
    """A range of a table, to be gone through any number of times.

    It is an Arrow stream (`pyarrow.table(scan)`, `polars.DataFrame(scan)`), and pairs of key and
    value to loop over.
    """

    @property
    def schema(self) -> Any:
        """Its columns, as a schema of pyarrow."""

    def to_arrow(self) -> Any:
        """All of it as a table of pyarrow."""

    def to_pandas(self) -> Any:
        """All of it as a data frame of pandas, by pyarrow."""

    def to_polars(self) -> Any:
        """All of it as a data frame of polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __iter__(self) -> Iterator[tuple[str, Any]]: ...

class RawRecords(Iterator[tuple[str, Any]]):
    def __next__(self) -> tuple[str, Any]: ...

class DistributedPush:
    """A push whose rows tasks bring, where its driver runs. It holds the table's push lock."""

    def __new__(cls, words: list[str], schema: Any, name: str) -> Self:
        """Takes the words of `forebay push` without sources, and the rows' Arrow schema."""

    @property
    def needs_samples(self) -> bool:
        """Whether `cut` has to be called, with samples, before rows can be encoded."""

    @property
    def partitions(self) -> int:
        """How many partitions there are, once that is settled."""

    def set_boundaries(self, samples: Any | None, rows: int) -> int:
        """Settles where partitions begin, by what `TaskEncoder.sample` gave, a batch or a table.

        `rows` is how many the source has. Gives the number of partitions.
        """

    def recipe(self) -> bytes:
        """What tasks need to know; before `cut`, for `TaskEncoder.sample` only."""

    def commit(
        self, reports: list[str], listener: Drawing | None = None
    ) -> tuple[bool, str, list[str]]:
        """Publishes the version that the reports tell of; gives what `command` gives."""

    def abandon(self) -> None:
        """Gives the lock back and removes what tasks wrote. After `commit` it does nothing."""

class DistributedLoad:
    """A load into a live table of a cluster whose rows tasks bring, where its driver runs.

    It holds the lock of loads into the table.
    """

    def __new__(cls, words: list[str], schema: Any, name: str) -> Self:
        """Takes the words of `forebay load` without sources, and the rows' Arrow schema."""

    @property
    def by_age(self) -> bool:
        """Whether which of two rows of a key came first matters."""

    @property
    def planned(self) -> bool:
        """Whether `make_ready` is to be called before rows are encoded."""

    @property
    def needs_samples(self) -> bool:
        """Whether that takes samples."""

    @property
    def partitions(self) -> int:
        """How many partitions the table has."""

    def make_ready(self, samples: Any | None, rows: int, listener: Drawing | None = None) -> None:
        """Has the table's partitions cut and moved as the plan says.

        It may be made by what `TaskEncoder.sample` gave, a batch or a table, of so many rows.
        """

    def recipe(self) -> bytes:
        """What tasks need to know; before `make_ready`, for `TaskEncoder.sample` only."""

    def commit(self, reports: list[str], listener: Drawing | None = None) -> str:
        """Has the cluster add what the reports tell of; gives the result as JSON."""

    def abandon(self) -> None:
        """Gives the lock back and removes what tasks wrote. After `commit` it does nothing."""

class TaskEncoder:
    """Turns the rows of one part of the source into records; `source` is that part's number."""

    def __new__(cls, recipe: bytes, source: int) -> Self: ...
    def sample(self, batch: Any, weights: list[int]) -> Any:
        """A batch of `key` and `bytes`, for `set_boundaries`: a row stands for `weights` rows each.

        Rows that cannot be stored are left out.
        """

    def encode(self, batch: Any) -> list[Any]:
        """Takes rows in; gives batches of `partition`, `records`, `source`, `sequence`.

        They are to be sent now. Each of their rows has a bunch of records.
        """

    def finish(self) -> list[Any]:
        """The rest, and the control rows, to be shuffled with it: `sequence` is -1."""

class PartWriter:
    """Writes the runs of whole partitions into the store."""

    def __new__(cls, recipe: bytes, scratch: str) -> Self:
        """`scratch` is a directory of this machine, for what does not fit in memory."""

    def add(self, batch: Any) -> int:
        """Takes bunches of records and control rows in, in any order; gives the number of records.

        Where one of several rows of a key is chosen, sorted by `source` and `sequence`.
        """

    def finish(self) -> list[str]:
        """Writes the runs and reads them back; gives a report for each partition."""
