"""Calls that pyright and mypy must refuse, in every form in which options are given.

This file never runs. `make lint` checks it, and fails if a checker accepts a line marked as wrong.
"""

import pandas  # pyright: ignore[reportMissingTypeStubs]
from pyspark.sql import DataFrame
from ray.data import Dataset

import forebay
import forebay.ray
import forebay.spark
from forebay import DryRun, LoadResult, PushResult

rows = [{"id": 1}]
store = forebay.open("store")
table = store["t"]
words = {"kee": "{id}"}

# Correct calls.
pushed: PushResult = forebay.push(rows, "t", key="{id}")
tried: DryRun = forebay.push(rows, "t", key="{id}", dry_run="all")
again: PushResult = table.push({"id": [1]})
loaded: LoadResult = table.load(iter([rows]), key="{id}", as_="update")
frame: pandas.DataFrame = table.to_pandas()
forebay.push("rows.parquet", "t", key="{id}", column={"id": "int64"}, gate=["rows>-5%"])

# No such option.
forebay.push(rows, "t", kee="{id}")  # type: ignore[call-overload] # pyright: ignore
forebay.push(rows, "t", dry_run=True, kee="x")  # type: ignore[call-overload] # pyright: ignore
forebay.push(rows, "t", **words)  # type: ignore[call-overload] # pyright: ignore
store.push(rows, "t", kee="{id}")  # type: ignore[call-overload] # pyright: ignore
table.push(rows, kee="{id}")  # type: ignore[call-overload] # pyright: ignore
forebay.load(rows, "t", key="{id}", kee="x")  # type: ignore[call-arg] # pyright: ignore
table.load(rows, key="{id}", kee="x")  # type: ignore[call-arg] # pyright: ignore
store.create("t", kee="x")  # type: ignore[call-overload] # pyright: ignore
store.create("t", replicas=3, kee="x")  # type: ignore[call-overload] # pyright: ignore
forebay.open("store", kee="x")  # type: ignore[call-arg] # pyright: ignore
forebay.connect("localhost:7480", kee="x")  # type: ignore[call-arg] # pyright: ignore
table.verify(kee="x")  # type: ignore[call-arg] # pyright: ignore
table.scan(kee="x")  # type: ignore[call-arg] # pyright: ignore

# No such value.
forebay.push(rows, "t", order="sideways")  # type: ignore[call-overload] # pyright: ignore
store.push(rows, "t", duplicates="many")  # type: ignore[call-overload] # pyright: ignore
table.load(rows, key="{id}", as_="delete")  # type: ignore[arg-type] # pyright: ignore
store.create("t", delta="bits")  # type: ignore[call-overload] # pyright: ignore
forebay.push(7, "t", key="{id}")  # type: ignore[call-overload] # pyright: ignore

# Frames have types. mypy knows none of pandas', which comes without stubs.
height: int = table.to_polars().height
text: str = table.to_polars()  # type: ignore[assignment] # pyright: ignore
text = table.scan().to_polars()  # type: ignore[assignment] # pyright: ignore
text = forebay.connect("localhost")["t"].to_polars()  # type: ignore[assignment] # pyright: ignore
text = table.to_pandas()  # pyright: ignore
text = table.scan().to_pandas()  # pyright: ignore


def of_clusters(frame: DataFrame, dataset: Dataset) -> None:
    forebay.spark.push(frame, "t", key="{id}", sampler="split")
    forebay.spark.push(frame, "t", key="{id}", kee="x")  # type: ignore[call-arg] # pyright: ignore
    forebay.spark.load(frame, "t", key="{id}", kee="x")  # type: ignore[call-arg] # pyright: ignore
    forebay.ray.push(dataset, "t", key="{id}", kee="x")  # type: ignore[call-arg] # pyright: ignore
    forebay.ray.load(dataset, "t", key="{id}", kee="x")  # type: ignore[call-arg] # pyright: ignore
