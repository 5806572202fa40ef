"""What the options of functions that take rows mean, for `help`: each once."""

from __future__ import annotations

from . import _options as options

_ROWS = {
    "store": "directory or URL of the store; without it `FOREBAY_STORE`, else `./forebay-data`",
    "work_dir": "directory in which files for object storage are built before they are sent; "
    "by default one of the user's cache",
    "value": 'what is stored for a key: "row", which is the default, or the name of one column',
    "duplicates": 'what becomes of several rows of one key: by default they "fail"; "first" '
    'and "last" are in the order of the source',
    "ttl": "when rows expire, counted from the push: seconds, a timedelta, or text as "
    '"7d", "12h", "90m" or "30s"; from then '
    "on they are absent",
    "ttl_column": "the column that says when a row expires: a time, or seconds after the push; "
    "where it is null the row never does",
    "column": "types of columns, where they are not to be guessed: a mapping of names to types "
    'as "decimal(12,2)", or a list of "name:type"',
    "columns_from": "a table, a version of one, or a file of `forebay export --json`, whose "
    "types the columns get",
    "memory": 'bytes for sorting, also as "4G"; what does not fit is spilled to the store; by '
    "default a quarter of the machine's memory",
    "progress": "True for bars, False for nothing, or a function that is called with a "
    "`Progress`; by default bars where there is somebody to see them",
}
_VERSION = {
    "order": '"hashed" for look-ups by key, the default, or "ordered" for ranges too',
    "partitions": "number of parts that are built and served on their own; by default by size",
    "boundaries": "where partitions begin: a list of keys of an ordered table or of slots of a "
    "hashed one, or a file of it as JSON",
    "delta": 'what deltas of later pushes do to the values, which are numbers but for "append"',
    "version": "number of the version, greater than all before; by default the next one",
    "compression": 'compression of the pages; by default "none"',
    "page_size": "bytes of a page, the unit of one read: a power of two from 4096 to 32768, "
    'also as "4k"; by default 4096, or 16384 when compressed',
    "gate": 'limits for the change against the serving version, as "rows>-20%" or '
    '"column-gone(note)=report", one or a list',
    "force": "whether it serves even where a limit is passed",
    "no_swap": "whether the version is only built and kept, while the one before serves on",
    "no_create": "whether a store that is not there is a `MissingError`, in place of being made",
    "keep": "how many versions are kept; by default 3; the serving one and the one before "
    "always are",
    "replicas": "in a cluster, how many nodes hold each part of a new table, 1 to 5; by default 3",
    "deadline": "in a cluster, a node that makes no progress for so long is left out, or the "
    'push ends: "1s" to "30d"; by default "30m"',
    "min_replicas": "in a cluster, on how many nodes each part has to be ready then; by "
    "default on all replicas but one",
    "on_failure": "in a cluster, what happens where a node does not serve the version after "
    'the swap: by default all "revert", with "keep" it serves on where enough have it',
}
_READING = {
    "op": "the column that says what a row does: insert, update, delete or delta; without it "
    "all rows update",
    "bad_rows": 'what becomes of rows that cannot be stored: by default they "fail"; "skip" '
    "leaves them out, a path writes them to that file with the reason",
    "format": "format of the files, where neither names nor first bytes show it",
    "csv_delimiter": "the character between two fields; by default a comma, of .tsv a tab",
    "csv_null": "texts of an absent value, one or a list, besides the empty field",
    "csv_quote": 'the character around fields that hold a delimiter; by default `"`',
    "csv_no_header": "whether the first line holds data: columns are called column_1 and so on",
    "packet_data": "of packet captures, whether the packets' bytes come too, as the column data",
    "threads": "threads that read, sort and write; by default one a core",
    "rate": 'bytes of records a second that are read and written at most, also as "100M"; by '
    "default without limit",
}
_KEY = {
    "key": 'the template over columns that makes keys, as "{carrier}/{flight:05}", which pads '
    "with zeros; it may be left out with `onto`",
}
_PUSH = {
    "onto": 'the version that this one is based on, without rewriting its rows: "current" or its '
    "number; the data has only changes",
}
_INTO_LIVE = {
    "as_": 'what rows do: by default they "update"; "insert" only where the key is absent, '
    '"delta" adds to the value',
    "deadline": "in a cluster, so long without progress before anything is added, and the load "
    'ends: "1s" to "30d"; by default "30m"',
    "plan": 'in a cluster, what is done before rows come: "auto" splits and moves partitions so '
    'that all nodes take part alike, where that saves more time than it takes; "always" in any '
    'case; a path is a plan as a file; by default "none"',
    "partition_bytes": "of such a plan, what a piece that moves is to hold at most, in bytes or as "
    '"1G"; by default as much as leaves four for each node',
    "move_price": "of such a plan, what a record that is moved costs, where one that is "
    "inserted costs 1; by default 1",
    "batch": "of such a plan, how much is copied before its lists change, in bytes or as "
    '"1G"; by default 1 GiB',
}
_LOAD = {
    "value": "the column of the values, in a table that is not one of rows; by default the one "
    "that is left over",
    "duplicates": "which of several updates of one key holds, in the order of the source; by "
    'default the "last"; other operations of one key are composed',
    "ttl": 'when the rows expire, counted from now, as "12h"; by default as the table says',
    "ttl_column": "the column that says when a row expires: a time, or seconds from now; where "
    "it is null, as the table says",
    "insert": 'how rows come into a live table of a cluster: by default as "runs", which its '
    'nodes fetch; as "rows" each is a separate write',
    "order": 'with `insert="rows"`, the order in which they are sent: by default "sorted" by key',
    "seed": "what random order is made of; by default 1",
    "clients": 'with `insert="rows"`, how many send at a time; by default one for each node',
    "batch_rows": 'with `insert="rows"`, rows in a request; by default 512',
    "login": 'with `insert="rows"`, a file of one line, user:password',
    "tls_ca": 'with `insert="rows"`, a file of the certificates that are trusted, in PEM',
    "tls_cert": 'with `insert="rows"`, a file of the client\'s own certificate, in PEM',
    "tls_key": 'with `insert="rows"`, a file of its private key, in PEM',
    "index": "in a cluster, secondary indexes that are loaded too: a mapping of tables to "
    'templates of their keys, or a list of "table=template"',
}
_CREATE = {
    "order": '"hashed" for look-ups by key, the default, or "ordered" for ranges too',
    "partitions": "number of partitions of a hashed table; by default 4, in a cluster 16",
    "boundary": "keys at which the partitions of an ordered table begin",
    "value": 'what is stored for a key: by default "bytes"; "row" of the columns given, "list" '
    "of the items given",
    "delta": 'what deltas do to the values, which are numbers but for "append"',
    "column": 'the columns of rows: a mapping of names to types as "int64", or a list of '
    '"name:type"',
    "item": 'the type of the items of lists, as "text"',
    "durability": 'when a write returns: by default "sync", when the device has it; "100ms", '
    'when the system has it, which is synced so often; "os", when it is left to the system',
    "ttl": 'when keys expire, as "12h" after they were set; "per-key", those of which the '
    'write says so, the default; "never", the default of a table with deltas',
    "factor": "how many runs are merged into one; by default 4",
    "merge_rate": 'bytes a second that merges write at most, also as "50M"; by default without '
    "limit",
    "compression": 'compression of the pages; by default "none"',
    "replication": 'in a cluster, "leader": one replica of each partition leads, and a '
    "majority has each write",
}
_TASKS = {
    "bad_rows": 'what becomes of rows that cannot be stored: by default they "fail"; "skip" leaves '
    "them out",
}

TEXTS: dict[type, dict[str, str]] = {
    options.PushOptions: _KEY | _ROWS | _VERSION | _READING | _PUSH,
    options.LoadOptions: _ROWS | _READING | _INTO_LIVE | _LOAD,
    options.CreateOptions: _CREATE,
    options.ClusterOptions: _ROWS | _VERSION | _TASKS,
    options.TaskLoadOptions: _ROWS | _READING | _INTO_LIVE | _LOAD | _TASKS,
}
"""By the class of a function's options; it may have texts of others."""
