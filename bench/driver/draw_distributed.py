"""The drawing of `make bench-distributed`: the paper's table 1 as groups of bars, and what else was measured."""

import distributed_s3
from draw import OURS, REFERENCE, THEIRS, bars, plt, save

#: In the order of the paper's columns: what the line has, what it is called, its colour.
TABLE1 = (
    ("upload", "raw upload of the file", REFERENCE),
    ("one", "one client's puts *", "#5b6b7b"),
    ("one_pipelined", "one client, pipelines of 100 *", "#9aa5b1"),
    ("parallel", "parallel puts *", "#3a76af"),
    ("parallel_pipelined", "parallel, pipelines of 100 *", "#9dbfdd"),
    ("push_served_seconds", "run building, until it serves", OURS),
)
SPARK = {"push": ("forebay", "forebay.spark.push"), "parquet": ("parquet", "sorted Parquet")}
CAPTURES = {
    "read": "cat", "walk": "tcpdump -w /dev/null", "parse": "tcpdump -nn -tt -q", "push-1": "forebay push, 1 thread",
    "push-2": "forebay push, 2 threads",
}


def distributed(body: dict, base) -> None:
    drawings = {"table1": table1, "s3": s3, "captures": captures, "spark": spark}
    there = [part for part in drawings if body.get(part)]
    widths = [1.6 if part == "table1" else 1 for part in there]
    figure, grid = plt.subplots(
        1, max(len(there), 1), figsize=(5.6 * max(sum(widths), 1), 4.8), squeeze=False, gridspec_kw={"width_ratios": widths or [1]}
    )
    for axes, part in zip(grid[0], there):
        drawings[part](axes, body[part])
    save(figure, base)


def table1(axes, found: dict) -> None:
    lines = found["lines"]
    width = 0.86 / len(TABLE1)
    for place, (name, label, colour) in enumerate(TABLE1):
        for group, line in enumerate(lines.values()):
            if line[name]:
                at = group + (place - (len(TABLE1) - 1) / 2) * width
                axes.bar(at, line[name], width * 0.92, color=colour, label=label if group == 0 else None)
                axes.text(at, line[name] * 1.04, f"{line[name]:,.3g}" if line[name] < 100 else f"{line[name]:,.0f}", ha="center", fontsize=8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    all_seconds = [seconds for line in lines.values() for name, _, _ in TABLE1 if (seconds := line[name])]
    axes.set_ylim(min(all_seconds) / 2, max(all_seconds) * 2)
    axes.set_xticks(range(len(lines)), [f"{workers} worker{'s' if int(workers) > 1 else ''}" for workers in lines])
    axes.set_ylabel("s, less is better")
    axes.set_title(f"The paper's table 1: {found['rows'] / 1e6:g} million packets (* extrapolated)", loc="left")
    axes.legend(frameon=False, fontsize=8, ncol=3, loc="upper center", bbox_to_anchor=(0.5, -0.08))


def s3(axes, found: dict) -> None:
    """Each beside the copy of the same bytes."""
    middle, size = found["median"], found["bytes"]
    shown = {what: label for what, label in distributed_s3.LABELS.items() if what != "push_local"}
    rates = [size * distributed_s3.nodes(what) / middle[what] / 1e6 for what in shown]
    places = [-(place + 0.6 * (place // 2)) for place in range(len(shown))]
    axes.barh(places, rates, color=[OURS if what.startswith("pu") else THEIRS for what in shown])
    for place, rate in zip(places, rates):
        axes.text(rate + max(rates) * 0.01, place, f"{rate:,.0f}", va="center")
    axes.set_yticks(places, shown.values())
    axes.set_xlim(0, max(rates) * 1.15)
    axes.set_title(f"{size / 1e6:.0f} MB of runs, to and from S3", loc="left")
    axes.set_xlabel("MB/s, of all nodes, more is better")


def captures(axes, found: dict) -> None:
    rows = [
        ("forebay" if what.startswith("push") else "other", CAPTURES[what], found["packets"] / r["seconds"] / 1e6)
        for what, r in found["median"].items() if what != "read"
    ]
    bars(axes, rows, f"A capture of {found['bytes'] / 1e9:.1f} GB", "million packets a second, more is better", 2, True)


def spark(axes, found: dict) -> None:
    rows = [
        (SPARK[what][0], f"{SPARK[what][1]}, {of}", r["cpu_seconds"]) for of, sets in found["median"].items() for what, r in sets.items()
    ]
    bars(axes, rows, f"Spark, {found['workers']} workers: {found['rows'] / 1e6:g} million rows", "processor s, less is better", 1)
