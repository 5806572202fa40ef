"""Forebay publishes big computed data sets into live serving.

`push` builds a version of a table from a data frame, a query or files, checks it and swaps it in;
`open` reads tables in this process, and writes live ones; `connect` does both through servers.

>>> import pyarrow as pa
>>> import forebay
>>> birds = pa.table({"id": [1, 2, 3], "name": ["wren", "lark", "kite"]})
>>> result = forebay.push(birds, "birds", key="{id}", store=store)
>>> result.version, result.rows
(1, 3)
>>> with forebay.open(store) as opened:
...     opened["birds"][2]
{'id': 2, 'name': 'lark'}
"""

from ._dry_run import DryRun
from ._errors import (
    BusyError,
    DamagedError,
    DataError,
    Error,
    GateHeld,
    MissingError,
    NotWrittenError,
    UncertainError,
    UsageError,
)
from ._forebay import version as __version__
from ._load import LoadResult, RowsSent, load
from ._progress import Progress
from ._push import PushResult, push
from ._remote import Connection, RemoteTable, Versioned, connect
from ._remote_scan import RemoteScan
from ._results import (
    Applied,
    BadRow,
    Compacted,
    Diff,
    Difference,
    Finding,
    Listing,
    Lossy,
    Swapped,
    TableInfo,
    Verified,
    VersionInfo,
)
from ._statistics import ColumnStatistics
from ._store import Batch, Scan, Store, Table, open

__all__ = [
    "Applied",
    "BadRow",
    "Batch",
    "BusyError",
    "ColumnStatistics",
    "Compacted",
    "Connection",
    "DamagedError",
    "DataError",
    "Diff",
    "Difference",
    "DryRun",
    "Error",
    "Finding",
    "GateHeld",
    "Listing",
    "LoadResult",
    "Lossy",
    "MissingError",
    "Progress",
    "PushResult",
    "RemoteScan",
    "RemoteTable",
    "RowsSent",
    "Scan",
    "Store",
    "Swapped",
    "Table",
    "TableInfo",
    "NotWrittenError",
    "UncertainError",
    "UsageError",
    "Verified",
    "VersionInfo",
    "Versioned",
    "__version__",
    "connect",
    "load",
    "open",
    "push",
]
