"""`make bench-sources BASELINE=FILE`: pushes of Parquet, CSV and JSON lines by this binary and by an older one, in turn.

Also with a type that only the last row shows, where the reading starts over, and what the parts of a push of Parquet take.
"""

import os
import shutil
import subprocess
from pathlib import Path

import common
from common import DATA, Failed, Report, median_of, ratio, say, shown

ROWS = {"parquet": 10_000_000, "csv": 4_000_000, "jsonl": 2_000_000}


def main() -> None:
    options = common.arguments(__doc__)
    common.need_disk(12)
    baseline = os.environ.get("BASELINE")
    report = Report("sources", "Pushes by kind of source", options)
    report.text("Seconds of the command and processor seconds, medians; two threads, tables without a version before.")
    binaries = {"now": os.environ["FOREBAY"], **({"before": baseline} if baseline else {})}
    rows = []
    for kind, count in ROWS.items():
        count //= 10 if options.trial else 1
        source = write(kind, count)
        say(f"{source.name}: {count:,} rows, {source.stat().st_size / 1e6:.0f} MB")
        runs: dict[str, list[dict]] = {}
        for _ in range(options.rounds):
            for name, binary in binaries.items():
                runs.setdefault(name, []).append(push(binary, source))
        middle = {name: median_of(these) for name, these in runs.items()}
        before = middle.get("before", {})
        rows.append({"kind": kind, "rows": count, **middle, "runs": runs})
        report.body[kind] = rows[-1]
        report.targets([
            (f"{kind}: processor time now / before", ratio(middle["now"]["cpu_s"], before.get("cpu_s")),
             1.05 if kind == "parquet" else 1.15, " x"),
            (f"{kind}: time now / before", ratio(middle["now"]["seconds"], before.get("seconds")),
             1.05 if kind == "parquet" else 1.15, " x"),
        ])
    report.table(
        ["source", "rows", "s", "processor s", "s before", "processor s before"],
        [[row["kind"], f"{row['rows']:,}", *(shown(row.get(name, {}).get(key), 2)
          for name in ("now", "before") for key in ("seconds", "cpu_s"))] for row in rows],
    )
    late(report, options)
    parts(report, options)
    report.write()


def late(report: Report, options) -> None:
    """A CSV file whose last row is of another type."""
    source = write("csv", ROWS["csv"] // (10 if options.trial else 1))
    other = source.with_name("late-" + source.name)
    shutil.copyfile(source, other)
    with other.open("a") as out:
        out.write("late,x,1.5,1,2026-11-22,true,late\n")
    runs = [push(os.environ["FOREBAY"], other) for _ in range(options.rounds)]
    other.unlink()
    report.body["late"] = {**median_of(runs), "runs": runs}
    report.text(f"The CSV file with another type in its last row: {report.body['late']['seconds']:.2f} s (it is read, looked at, and read again).")


def parts(report: Report, options) -> None:
    source = write("parquet", ROWS["parquet"] // (10 if options.trial else 1))
    # Beside the binary's package, so that what is built for that is used.
    build = ["cargo", "build", "--quiet", "--release", "--locked", "-p", "forebay", "-p", "forebay-load", "--example", "push_parts"]
    common.run(build, seconds=1800)
    parts = Path(os.environ["FOREBAY"]).resolve().parent / "examples" / "push_parts"
    done = common.run([parts, source, "{key}"], seconds=900)
    report.body["parts"] = done.splitlines()
    report.text("What the parts of a push of the Parquet file take, each line with all before it but the last two:", "", *(f"- {line}" for line in done.splitlines()))


def write(kind: str, count: int) -> Path:
    """The file, made once: text of 100 bytes in Parquet, seven columns of all kinds in the text formats."""
    path = DATA / f"sources-{count // 1000}k.{kind}"
    if path.exists():
        return path
    DATA.mkdir(exist_ok=True)
    import numpy
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    random = numpy.random.default_rng(11)
    letters = random.integers(97, 123, size=(count, 100), dtype=numpy.uint8).tobytes()
    offsets = numpy.arange(0, (count + 1) * 100, 100, dtype=numpy.int64)
    text = pyarrow.LargeStringArray.from_buffers(count, pyarrow.py_buffer(offsets.tobytes()), pyarrow.py_buffer(letters))
    ids = random.permutation(count)
    key = pyarrow.array(numpy.char.zfill(ids.astype("U16"), 16).tolist())
    unfinished = path.with_suffix(".unfinished")
    if kind == "parquet":
        table = pyarrow.table({"key": key, "value": text.cast(pyarrow.string())})
        pyarrow.parquet.write_table(table, unfinished, row_group_size=1_000_000, use_dictionary=False, write_page_checksum=True)
    else:
        days = pyarrow.array(random.integers(0, 20_000, count).astype("int32"), pyarrow.date32())
        table = pyarrow.table({
            "id": ids, "key": key, "price": numpy.round(random.random(count) * 1000, 2),
            "count": random.integers(0, 1000, count), "day": days, "flag": random.random(count) < 0.5, "text": text,
        })
        if kind == "csv":
            pyarrow.csv.write_csv(table, unfinished, pyarrow.csv.WriteOptions(quoting_style="needed"))
        else:
            import duckdb

            duckdb.from_arrow(table).query("t", f"COPY t TO '{unfinished}' (FORMAT json)")
    unfinished.rename(path)
    return path


def push(binary: str, source: Path) -> dict:
    store = common.fresh("sources")
    os.sync()
    command = [binary, "--quiet", "--json", "--store", store, "push", "--create", "t", source, "--key", "{key}", "--threads", "2"]
    before = os.times()
    start = before.elapsed
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900)
    after = os.times()
    shutil.rmtree(store, ignore_errors=True)
    if done.returncode != 0:
        raise Failed(f"{source.name}: {done.stderr.strip()[-300:]}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": after.elapsed - start, "cpu_s": used}


if __name__ == "__main__":
    main()
