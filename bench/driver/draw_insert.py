"""The drawing of `make bench-insert`: the paper's figures 5, 7, 9 and 11 with our numbers, and what they do not show."""

import insert_moving
import insert_simulated
import insert_times
import insert_ways
from draw import OURS, REFERENCE, THEIRS, grouped, legend, plt, save

COLOURS = {"planned": OURS, "coarse": "#5fae8f", "unplanned": THEIRS, "random": "#b5651d", "sorted": REFERENCE}
NAMES = {"planned": "planned", "coarse": "planned, larger partitions", "unplanned": "unplanned runs", "random": "one at a time, random (counted up)",
         "sorted": "one at a time, sorted (counted up)"}
PHASES = ("#c9d6cf", "#8fb8a6", "#5fae8f", OURS, "#d9c38f", "#b5651d", "#9aa5b1", "#6b7785")


def insert(body: dict, base) -> None:
    drawings = []
    if body.get("times"):
        shown = {"size": sizes, "skew": skews, "nodes": scaled, "rows": rows}
        there = {row["part"] for row in body["times"]}
        drawings += [(work, body["times"]) for part, work in shown.items() if part in there]
        drawings += [(phases, body["times"])] if "size" in there else []
    more = {"latency": latency, "moving": moving, "simulated": simulated}
    drawings += [(work, body[part]) for part, work in more.items() if body.get(part)]
    lines = max((len(drawings) + 1) // 2, 1)
    figure, grid = plt.subplots(lines, 2, figsize=(14, 4.2 * lines), squeeze=False)
    places = [axes for line in grid for axes in line]
    for axes, (work, found) in zip(places, drawings):
        work(axes, found)
    for axes in places[len(drawings):]:
        axes.axis("off")
    save(figure, base)


def curve(axes, way: str, points: list, dashed: bool = False) -> None:
    if points:
        xs, ys = zip(*sorted(points))
        axes.plot(xs, ys, "--" if dashed else "-", marker="o", markersize=4, color=COLOURS[way], label=NAMES[way])


def sizes(axes, found: list) -> None:
    case = insert_times.main_case(found)
    these = [row for row in found if row["part"] == "size"]
    for way in insert_times.RUNS:
        curve(axes, way, [(row["rows"] / 1e3, row["seconds"]) for row in these if row["way"] == way])
    most = max(row["rows"] for row in these)
    for way in ("random", "sorted"):
        rate = next((row["seconds"] / row["rows"] for row in found if row["way"] == way and row["kind"] == case["kind"]), None)
        if rate:
            curve(axes, way, [(rows / 1e3, rate * rows) for rows in sorted({row["rows"] for row in these})], True)
    axes.set_yscale("log")
    axes.set_xlim(0, most / 1e3 * 1.05)
    legend(axes, f"Total time by size, {insert_times.KINDS[case['kind']]} (the paper's figure 5)", "thousand rows of 1 KB", "s, less is better")


def skews(axes, found: list) -> None:
    case = next(row for row in found if row["part"] == "skew")
    same = [row for row in found if row["part"] in ("size", "skew") and row["rows"] == case["rows"] and row["base"] == case["base"]]
    kinds = [kind for kind in insert_times.KINDS if any(row["kind"] == kind for row in same)]
    seconds = {way: [insert_times.seconds_of(same, kind=kind, way=way) for kind in kinds] for way in insert_times.RUNS}
    grouped(axes, kinds, [(NAMES[way], COLOURS[way], values) for way, values in seconds.items()])
    axes.set_xticks(range(len(kinds)), [insert_times.KINDS[kind].replace(" of ", "\nof ").replace(" all ", " all\n", 1) for kind in kinds], fontsize=8)
    legend(axes, f"Where {case['rows'] / 1e3:g} thousand rows fall (figure 7)", "", "s, less is better")


def scaled(axes, found: list) -> None:
    case = next(row for row in found if row["part"] == "nodes")
    each = case["rows"] // case["nodes"]
    these = [row for row in found if row["part"] in ("nodes", "size") and row["rows"] == each * row["nodes"]]
    for way in insert_times.RUNS:
        curve(axes, way, [(row["nodes"], row["seconds"]) for row in these if row["way"] == way])
    axes.set_ylim(bottom=0)
    axes.set_xticks(sorted({row["nodes"] for row in these}))
    legend(axes, "Nodes, as many rows a node, all into one partition (figure 11)", "nodes, real processes", "s, less is better")


def rows(axes, found: list) -> None:
    case = insert_times.main_case(found)
    these = [row for row in found if row["way"] in insert_ways.ROWS]
    # Each label once: bars of one label would lie on each other.
    other = lambda row: [f", {row['kind']} keys"] * (row["kind"] != case["kind"]) + [f", {row['replicas']} replicas"] * (row["replicas"] != case["replicas"])  # noqa: E731
    bars = [("".join([insert_ways.WAYS[row["way"]][0], *other(row)]), row["rows"] / row["seconds"], "#b5651d") for row in these]
    for way in insert_times.RUNS:
        seconds = insert_times.seconds_of(found, way=way, **case)
        if seconds:
            bars.append((NAMES[way], case["rows"] / seconds, COLOURS[way]))
    bars.sort(key=lambda bar: bar[1])
    axes.barh([bar[0] for bar in bars], [bar[1] for bar in bars], color=[bar[2] for bar in bars])
    for place, bar in enumerate(bars):
        axes.text(bar[1], place, f" {bar[1]:,.0f}", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.margins(x=0.2)
    axes.set_xlabel("rows a second, more is better")
    axes.set_title("Rows in place of runs", loc="left")


def phases(axes, found: list) -> None:
    these = [row for row in found if row["part"] == "size"]
    # Its steps are shown in its place.
    names = [name for name in dict.fromkeys(name for row in these for name in row["phases"]) if not name.startswith(("cutting and moving", "splitting and moving"))]
    order = [name for name in names if name not in (insert_ways.CUTS, insert_ways.MOVES, insert_ways.LET_GO)]
    steps = [name for name in (insert_ways.CUTS, insert_ways.MOVES, insert_ways.LET_GO) if name in names]
    order = order[:1] + steps + order[1:]
    labels = [f"{NAMES[row['way']]}\n{row['rows'] / 1e3:g} thousand" for row in these]
    left = [0.0] * len(these)
    for name, colour in zip([*order, "rest"], PHASES):
        values = [row["phases"].get(name) or 0 for row in these]
        if name == "rest":
            values = [max(row["seconds"] - sum(row["phases"].get(one) or 0 for one in order), 0) for row in these]
        axes.barh(labels, values, left=left, color=colour, label=name)
        left = [at + value for at, value in zip(left, values)]
    legend(axes, "Where the seconds go", "s", "")
    axes.invert_yaxis()


def latency(axes, found: dict) -> None:
    run = found["runs"][0]
    for place, name, colour in ((1, "p50", "#5fae8f"), (2, "p99", OURS)):
        axes.plot([point[0] for point in run["timeline"]], [point[place] for point in run["timeline"]], color=colour, label=name)
    top = max(point[2] for point in run["timeline"])
    marks = [(name, span) for name, span in run["marks"].items() if name != "the whole load" and span[1] - span[0] > 0.4]
    for number, (name, (low, high)) in enumerate(sorted(marks, key=lambda mark: mark[1][0])):
        axes.axvspan(low, high, color="#f0ede4" if number % 2 else "#faf8f2", zorder=0)
        axes.text(low, top * (1.9 - 0.22 * (number % 4)), f" {name}", fontsize=7, va="top")
    before = run["spans"]["before"]["all_p99"]
    axes.axhline(1.5 * before, color="#b5651d", linewidth=0.8, linestyle=":", label="1.5 x p99 before")
    axes.set_ylim(0, 2 * top)
    legend(axes, "What clients wait while rows are loaded (figure 9)", "s", "ms, of each second")
    axes.legend(frameon=False, fontsize="small", loc="center right")


def moving(axes, found: list) -> None:
    one = found[0]
    points = one["near"]
    axes.plot([point[0] for point in points], [point[1] for point in points], ".", markersize=2, color=OURS)
    axes.axhline(insert_moving.LIMIT_MS, color="#b5651d", linewidth=0.8, linestyle=":")
    axes.set_yscale("log")
    axes.set_title(f"Writes around the hand-over of {one['bytes'] / 1e6:,.0f} MB, {one['replicas']} replica (line: {insert_moving.LIMIT_MS} ms)", loc="left")
    axes.set_xlabel("s from when another node leads")
    axes.set_ylabel("ms, each write")


def simulated(axes, found: dict) -> None:
    runs = found["runs"]
    shades = {"uniform": "#9aa5b1", "zipf": OURS, "append": "#b5651d"}
    for kind in insert_simulated.KINDS:
        these = [run for run in runs if run["kind"] == kind]
        xs = [run["nodes"] for run in these]
        axes.plot(xs, [run["planned_seconds"] for run in these], marker="o", markersize=4, color=shades[kind], label=f"planned, {kind}")
        axes.plot(xs, [run["unplanned_seconds"] for run in these], "--", color=shades[kind], label=f"unplanned, {kind}")
    axes.set_yscale("log")
    axes.set_xticks(insert_simulated.NODES)
    legend(axes, "Simulated, as many rows a node (figure 11)", "nodes", "s, moves and inserts")
