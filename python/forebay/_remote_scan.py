"""`RemoteTable.scan`: a range of a table of servers."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ._errors import UsageError
from ._frames import of_pandas
from ._remote_reads import Range, Reader
from ._remote_values import Layout, Shape, key_text

if TYPE_CHECKING:
    import pandas as pd  # pyright: ignore[reportMissingTypeStubs]
    import polars as pl


def imported(package: str) -> Any:
    """A package that is not needed for all."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        message = f"it takes the package {package} (pip install {package}): {error}"
        raise UsageError(message) from None


class RemoteScan:
    """A range of a table of servers, to be gone through any number of times.

    `RemoteTable.scan` gives it. It is an Arrow stream (`pyarrow.table(scan)`,
    `polars.DataFrame(scan)`), and pairs of key and value to loop over. Each time it asks the
    servers again, a few thousand records at a time. The key is a column of its own unless the
    columns of its template are there.

    >>> import polars as pl
    >>> scan = forebay.connect(url)["people"].scan("c")
    >>> list(scan)
    [('c', {'id': 'c', 'name': 'Cyd', 'age': 19})]
    >>> pl.DataFrame(scan).rows()
    [('c', 'Cyd', 19)]

    The examples of the methods continue from here.
    """

    def __init__(
        self, reader: Reader, span: Range, binary: bool, columns: Sequence[str] | None
    ) -> None:
        self._reader, self._span, self._binary = reader, span, binary
        self._names = columns

    def reader(self) -> Any:
        """A `pyarrow.RecordBatchReader`, whose batches come from the servers one by one.

        Its batches raise what `to_arrow` raises.

        >>> scan.reader().read_next_batch().num_rows
        1
        """
        shape = self._reader.fresh_shape()
        layout = self._layout(shape)
        pages = self._reader.pages(shape, self._span)
        batches = (layout.batch(page) for page in pages)
        arrow: Any = importlib.import_module("pyarrow")
        return arrow.RecordBatchReader.from_batches(layout.schema, batches)

    def _layout(self, shape: Shape) -> Layout:
        return Layout(shape, self._binary, self._names)

    @property
    def schema(self) -> Any:
        """Its columns as a `pyarrow.Schema`.

        >>> scan.schema.names
        ['id', 'name', 'age']
        """
        return self._layout(self._reader.fresh_shape()).schema

    def to_arrow(self) -> Any:
        """All of it as a `pyarrow.Table`; raises what `RemoteTable.scan` says.

        Without `binary`, keys that are not UTF-8 are a `UsageError`.

        >>> scan.to_arrow().to_pydict()
        {'id': ['c'], 'name': ['Cyd'], 'age': [19]}
        """
        return self.reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """All of it as a `pandas.DataFrame`, made by pyarrow; raises what `to_arrow` raises.

        Whole numbers and truth values among nulls are of pandas' own types, as `Int64` and
        `boolean`: as floats numbers would be rounded.

        >>> scan.to_pandas()["name"].tolist()
        ['Cyd']
        """
        imported("pandas")
        return of_pandas(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """All of it as a `polars.DataFrame`; raises what `to_arrow` raises, of polars.

        >>> scan.to_polars()["name"].to_list()
        ['Cyd']
        """
        polars = imported("polars")
        try:
            # Of the table, as polars has other classes for what is raised within a stream.
            return polars.DataFrame(self.to_arrow().to_reader())
        except BaseException as error:
            # How polars tells of types that it does not have; it is no Exception.
            if type(error).__name__ != "PanicException":
                raise
            raise UsageError(
                "polars does not hold the types of all columns: use to_arrow(), or scan the others "
                f"by columns=[...] (PanicException: {error})"
            ) from None

    def __array__(self, *_: Any, **__: Any) -> Any:
        # pandas and NumPy would make objects of keys and rows, in silence.
        raise TypeError(
            "a scan is no array: scan.to_pandas() is a data frame, scan.to_arrow() and "
            "scan.to_polars() others"
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader().__arrow_c_stream__()

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        shape = self._reader.fresh_shape()
        decode = shape.decoder_of(self._names)
        for page in self._reader.pages(shape, self._span):
            for key, value in page:
                yield key if self._binary else key_text(key), decode(value)
