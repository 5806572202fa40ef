"""What a swap costs at 10 GB: a table of two versions, one of 10.4 GB, one of a thousand records. They are swapped back
and forth while clients read the keys that both have."""

import shutil
import statistics
import time
from pathlib import Path

import common
import forebay_cli
from common import DATA, Report, ensure_set, harness, say, shown
from parquet import write_parquet

BOTH = 1000


def prepare(store: Path, records: int, table: str) -> dict:
    """Pushes the large version, then the small one; the sources are removed as soon as they are used."""
    common.need_disk(records * 1040 * 3 / 2**30 + 1)
    say(f"swap at {records * 1040 / 1e9:.1f} GB: pushing {records:,} rows of 1,024 B")
    large = ensure_set("big", records, 1024, "decimal")
    write_parquet(large, large.with_suffix(".parquet"))
    large.with_suffix(".flat").unlink()
    try:
        pushed = forebay_cli.push(store, table, large.with_suffix(".parquet"), seconds=900)
    finally:
        for path in DATA.glob("big.*"):
            path.unlink()
    small = ensure_set("small", BOTH, 1024, "decimal", 1)
    csv = small.with_suffix(".csv")
    harness("export", "--data", small, "--format", "csv", "--out", csv)
    forebay_cli.push(store, table, csv, "--column", "k:text", "--column", "v:text", "--force")
    return pushed


def measure(report: Report, load_type, ports: tuple, table: str, server: tuple, client: tuple, records: int) -> None:
    store = DATA / "big-store"
    shutil.rmtree(store, ignore_errors=True)
    try:
        pushed = prepare(store, records, table)
        versions = sorted(int(entry["version"]) for entry in forebay_cli.versions(store, table))
        took, at = [], []
        with forebay_cli.serve(store, *ports, DATA / "serve-big.log", server) as serving:
            serving.wait_until(
                lambda: common.run(["redis-cli", "-p", ports[0], "GET", f"{table}:{0:012d}"]).strip(), 60, "forebay serve"
            )
            with load_type(BOTH, 27) as load:
                for number in range(6):
                    time.sleep(max(0, 3 + 4 * number - load.now()))
                    at.append(load.now())
                    took.append(forebay_cli.swap(store, table, versions[number % 2], client))
        write(report, load.result, pushed, took, at, records)
    except common.Failed as why:
        report.failed("swap at 10 GB", why)
    finally:
        shutil.rmtree(store, ignore_errors=True)


def write(report: Report, result: dict, pushed: dict, took: list, at: list, records: int) -> None:
    changes = result["swaps"]
    ratios = [s["p99_around_us"] / s["p99_before_us"] for s in changes if s["p99_before_us"]]
    # Every other swap, the first among them, brings the large version in.
    into_large = [
        min((s["at"] - moment for s in changes if s["at"] >= moment), default=None) for moment in at[::2]
    ]
    into_large = [seconds for seconds in into_large if seconds is not None and seconds < 4]
    report.body["big_swap"] = {
        "records": records, "push": pushed, "command_seconds": took, "seen_after_seconds": into_large,
        "errors": result["errors"], "mixed": result["mixed"], "swaps": changes,
    }
    report.text(
        f"## Swap at {records * 1040 / 1e9:.1f} GB",
        "",
        f"{records:,} records of 12 + 1,024 B against a version of {BOTH:,}; clients read the keys of both. "
        f"Pushing the large one took {pushed['seconds']:.0f} s.",
    )
    report.table(
        ["requests", "errors", "mixed", "swap command ms (median)", "large version seen after ms (median)",
         "p99 around / before (median)"],
        [[shown(result["requests"]), result["errors"], result["mixed"], shown(statistics.median(took), 1, 1000),
          shown(statistics.median(into_large), 1, 1000) if into_large else "-",
          shown(statistics.median(ratios), 2) if ratios else "-"]],
    )
