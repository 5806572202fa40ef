"""The drawings of the results: plain horizontal bars and curves, as SVG (and PNG to look at)."""

import statistics

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

import contenders  # noqa: E402

OURS, THEIRS, REFERENCE = "#0b6e4f", "#9aa5b1", "#d9c38f"
MODE_COLOURS = {"paper": "#9aa5b1", "fast": "#0b6e4f", "polish": "#b5651d"}
plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "forebay"})


def save(figure, base) -> None:
    figure.tight_layout()
    figure.savefig(base.with_suffix(".svg"), metadata={"Date": None})
    from common import DATA

    look = DATA / "look"
    look.mkdir(parents=True, exist_ok=True)
    figure.savefig(look / f"{base.name}.png", dpi=110)
    plt.close(figure)


def colour(name: str) -> str:
    if name.startswith("forebay"):
        return OURS
    return REFERENCE if name.startswith(("hashmap", "external-sort")) else THEIRS


def bars(axes, rows: list, title: str, unit: str, digits: int = 0, more: bool = False) -> None:
    """Rows of (name, label, number), the best on top."""
    rows = sorted(rows, key=lambda row: row[2], reverse=not more)
    axes.barh([row[1] for row in rows], [row[2] for row in rows], color=[colour(row[0]) for row in rows])
    most = max((row[2] for row in rows), default=1)
    for place, row in enumerate(rows):
        axes.text(row[2] + most * 0.01, place, f"{row[2]:,.{digits}f}", va="center")
    axes.set_xlim(0, most * 1.15)
    axes.set_title(title, loc="left")
    axes.set_xlabel(unit)


def grouped(axes, groups: list, sides: list, digits: int = 0) -> None:
    """A bar for each group side by side; sides are (label, colour, a value or None for each group)."""
    width = 0.8 / len(sides)
    for number, (label, colour, values) in enumerate(sides):
        places = [place + (number - (len(sides) - 1) / 2) * width for place in range(len(groups))]
        there = [(place, value) for place, value in zip(places, values) if value is not None]
        axes.bar([place for place, _ in there], [value for _, value in there], width * 0.92, color=colour, label=label)
        for place, value in there:
            axes.text(place, value, f"{value:,.{digits}f}", ha="center", va="bottom", fontsize=8)
    axes.margins(y=0.25)


def legend(axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(frameon=False, fontsize="small")


def read(body: dict, base) -> None:
    labels = {c.name: c.label for c in contenders.CONTENDERS}
    sets = body["sets"]
    figure, grid = plt.subplots(len(sets), 3, figsize=(16, 4.2 * len(sets)), squeeze=False)
    for line, (name, results) in zip(grid, sets.items()):
        plain = {key: r for key, r in results.items() if not key.endswith("+huge")}
        for axes, (field, title) in zip(
            line, (("independent_ns", "warm random get"), ("miss_ns", "miss"), ("batch16_ns", "batches of 16, a get"))
        ):
            bars(axes, [(key, labels[key], r[field]) for key, r in plain.items()], f"{name}: {title}", "ns, less is better")
    save(figure, base)


def build(body: dict, base) -> None:
    parts = [key for key in ("stores", "curve", "parquet") if body.get(key)]
    figure, grid = plt.subplots(1, max(len(parts), 1), figsize=(6.5 * max(len(parts), 1), 4.5), squeeze=False)
    labels = {c.name: c.label for c in contenders.CONTENDERS}
    for axes, part in zip(grid[0], parts):
        if part == "stores":
            name, results = next(iter(body["stores"].items()))
            rows = [(key, labels[key], r["seconds"]) for key, r in results.items()]
            bars(axes, rows, f"building {name} from a flat file", "s, less is better", 1)
        elif part == "curve":
            curve(axes, body["curve"])
        else:
            rows = [(r["name"], r["label"], r["seconds"]) for r in body["parquet"]["rows"]]
            bars(axes, rows, f"Parquet, {body['parquet']['records']:,} rows", "s, less is better", 1)
    save(figure, base)


def curve(axes, rows: list) -> None:
    for name in dict.fromkeys(row["name"] for row in rows):
        points = [row for row in rows if row["name"] == name]
        ours = name.startswith("forebay")
        style = {"color": OURS, "linewidth": 2.2} if ours else {}
        dashes = "--" if name == "forebay-push" else "-"
        axes.plot(
            [p["records"] / 1e6 for p in points], [p["seconds"] for p in points],
            dashes, marker="o", markersize=3, label=points[0]["label"], **style,
        )
    axes.set_xlabel("million rows of 16 + 1,024 B")
    axes.set_ylabel("s")
    axes.set_title("Build time by size (the paper's figure 7)", loc="left")
    # Room for the legend above the highest line.
    axes.set_ylim(0, 1.7 * max(row["seconds"] for row in rows))
    axes.legend(frameon=False, loc="upper left", fontsize="small")


def server(body: dict, base) -> None:
    figure, grid = plt.subplots(1, 3, figsize=(17, 4.2))
    for axes, depth in zip(grid, (1, 16)):
        rows = [
            (name, name, r["median"] / 1e3)
            for name, r in body["throughput"].items() if name.endswith(f"-P{depth}")
        ]
        bars(axes, rows, f"GET, 50 connections, pipeline {depth}", "thousand a second, more is better", 0, True)
    timeline(grid[2], body.get("swap"))
    save(figure, base)


def timeline(axes, swap: dict | None) -> None:
    if not swap:
        axes.axis("off")
        return
    points = swap["timeline"]
    axes.plot([p["second"] for p in points], [p["p99_us"] for p in points], color=OURS)
    for at in swap["swaps_at"]:
        axes.axvline(at, color="#b5651d", linewidth=0.8)
    axes.set_title("p99 of reads while versions swap (lines: swaps)", loc="left")
    axes.set_xlabel("s")
    axes.set_ylabel("us")
    axes.set_ylim(bottom=0)


def plan(body: dict, base) -> None:
    figure, grid = plt.subplots(1, 3, figsize=(17, 4.6))
    for mode, found in body["small"]["modes"].items():
        ratios = found["ratios"]
        part = [100 * (place + 1) / len(ratios) for place in range(len(ratios))]
        grid[0].plot(part, ratios, label=mode, color=MODE_COLOURS[mode])
    grid[0].set_title("few partitions: cost / optimum", loc="left")
    grid[0].set_xlabel("% of the instances")
    grid[0].legend()
    families = list(body["families"])
    for shift, mode in zip((-0.27, 0, 0.27), MODE_COLOURS):
        above = [100 * (body["families"][family][mode] - 1) for family in families]
        places = [place + shift for place in range(len(families))]
        grid[1].barh(places, above, height=0.25, label=mode, color=MODE_COLOURS[mode])
    grid[1].set_yticks(range(len(families)), families)
    grid[1].set_xscale("symlog", linthresh=0.1)
    grid[1].set_title("10 x 500: above the bound", loc="left")
    grid[1].set_xlabel("%, less is better")
    grid[1].legend()
    growth = body["growth"]
    grid[2].plot([g["partitions"] for g in growth], [g["milliseconds_median"] / 1e3 for g in growth], marker="o", color=OURS)
    grid[2].set_xscale("log")
    grid[2].set_yscale("log")
    grid[2].set_title("fast: time by size, 200 partitions a machine", loc="left")
    grid[2].set_xlabel("partitions")
    grid[2].set_ylabel("s")
    save(figure, base)


SCHEME_COLOURS = {"coarse": "#c98b3b", "compact": "#8d6bb0", "balanced": "#4c78a8", "smooth": OURS}


def placement(body: dict, base) -> None:
    figure, grid = plt.subplots(1, 3, figsize=(17, 4.6))
    for scheme in dict.fromkeys(row["scheme"] for row in body["figure5"]):
        rows = [row for row in body["figure5"] if row["scheme"] == scheme]
        slots, means = [row["slots"] for row in rows], [row["mean"] for row in rows]
        line = "--" if scheme == "smooth" else "-"
        grid[0].plot(slots, means, line, marker="o", markersize=3, label=scheme, color=SCHEME_COLOURS[scheme])
    grid[0].set_title("the paper's figure 5: different partitions a node, power law", loc="left")
    grid[0].set_yscale("log", base=2)
    for workload in dict.fromkeys(row["workload"] for row in body["figure6"]):
        rows = [row for row in body["figure6"] if row["workload"] == workload]
        slots, means = [row["slots"] for row in rows], [row["even_split"] for row in rows]
        grid[1].plot(slots, means, marker="o", markersize=3, label=workload)
    grid[1].set_title("figure 6: hottest node / mean, balanced, split evenly", loc="left")
    for axes in grid[:2]:
        axes.set_xscale("log", base=2)
        axes.set_xlabel("slots a node (k)")
        axes.legend(frameon=False)
    shifted(grid[2], body["figure8"])
    save(figure, base)


def shifted(axes, rows: list) -> None:
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    width = 0.8 / len(schemes)
    for shift, scheme in enumerate(schemes):
        for place, workload in enumerate(workloads):
            values = next(r["least_loaded"] for r in rows if r["scheme"] == scheme and r["workload"] == workload)
            axes.bar(
                place + (shift - (len(schemes) - 1) / 2) * width, statistics.mean(values), width * 0.92,
                yerr=statistics.stdev(values), capsize=2, color=SCHEME_COLOURS[scheme],
                label=scheme if place == 0 else None,
            )
    axes.set_xticks(range(len(workloads)), workloads)
    axes.set_ylim(0, 1.25)
    axes.set_title("figure 8: throughput under table IV, mean and deviation", loc="left")
    axes.set_ylabel("of a perfect placement's")
    axes.legend(frameon=False, ncols=4, loc="upper center")
