"""The drawing of `make bench-cluster`."""

import json

import cluster_flip
import cluster_live
import cluster_moving
import cluster_redis
from cluster_places import middle
from draw import OURS, REFERENCE, THEIRS, bars, plt, save


def cluster(body: dict, base) -> None:
    drawings = {"flip": flip, "forward": forward, "moving": moving, "pushing": pushing, "redis": redis, "live": live}
    there = [part for part in drawings if body.get(part)]
    columns = min(len(there), 2) or 1
    lines = max((len(there) + 1) // 2, 1)
    figure, grid = plt.subplots(lines, columns, figsize=(7 * columns, 4.2 * lines), squeeze=False)
    places = [axes for line in grid for axes in line]
    for axes, part in zip(places, there):
        drawings[part](axes, body[part])
    for axes in places[len(there):]:
        axes.axis("off")
    save(figure, base)


def flip(axes, found: dict) -> None:
    """Each swap: from the commit to the first and to the last node."""
    labels, place = [], 0
    for name, these in found["places"].items():
        for kind in cluster_flip.KINDS:
            flips = [one for one in these["flips"] if one["kind"] == kind]
            for one in flips:
                axes.plot([one["to_first_s"] * 1e3, one["to_last_s"] * 1e3], [place, place], color=OURS, alpha=0.35, linewidth=7,
                          solid_capstyle="butt")
            if flips:
                last = middle(one["to_last_s"] for one in flips) * 1e3
                axes.plot([last], [place], "|", color="black", markersize=12)
                labels.append(f"{name}, {kind}")
                place -= 1
    axes.set_yticks([-number for number in range(len(labels))], labels)
    axes.set_xlim(left=0)
    axes.set_xlabel("ms after the commit, first to last of 5 nodes (line: the last one, median)")
    axes.set_title("A swap goes through the cluster", loc="left")


def forward(axes, found: dict) -> None:
    rows = []
    for depth, runs in found["runs"].items():
        for name, label in (("direct", "has the keys"), ("forwarded", "has none")):
            cpu = {who: middle(one[name]["cpu_us"][who] for one in runs) for who in ("holder", "other")}
            rows.append((f"{label}, pipeline {depth}", cpu["holder"], cpu["other"]))
    places = range(0, -len(rows), -1)
    axes.barh(places, [row[1] for row in rows], color=OURS, label="the node that has the keys")
    axes.barh(places, [row[2] for row in rows], left=[row[1] for row in rows], color=THEIRS, label="the node that has none")
    for place, row in zip(places, rows):
        axes.text(row[1] + row[2], place, f" {row[1] + row[2]:.1f}", va="center")
    axes.set_yticks(list(places), [f"asked: {row[0]}" for row in rows])
    axes.set_xlim(0, 1.15 * max(row[1] + row[2] for row in rows))
    axes.set_xlabel("us of processor time a GET, less is better")
    axes.set_title("Reads that are forwarded", loc="left")
    axes.legend(frameon=False, fontsize="small")


def moving(axes, body: dict) -> None:
    rate, found = next(iter(body["rates"].items()))
    kinds = {kind: [span for span in found["spans"] if span["kind"] == kind] for kind in cluster_moving.LABELS}
    waits(axes, {kind: spans for kind, spans in kinds.items() if spans}, f"Reads at a fixed rate while ... (--pull-rate {rate})")


def pushing(axes, body: dict) -> None:
    """Bars of idle spans, of the control that writes, and of pushes; without those at the default priority."""
    groups = {}
    for key, found in body["found"].items():
        kind, way = json.loads(key)
        if "--nice" in way:
            continue
        apart = ", own core" if "of its own" in way else ""
        for what in ("idle", "write", "push"):
            label = f"{kind.split(',')[0]}: {what}" + ("" if what == "idle" else apart)
            groups.setdefault(label, [span for span in found["spans"] if span["kind"] == what])
    waits(axes, groups, "Reads at a fixed rate while a table is pushed")


def waits(axes, groups: dict, title: str) -> None:
    """Bars of the p50, p99 and p99.9 of spans, medians, a group of bars a label."""
    fields = (("p50_us", "p50", "#c9d6cf"), ("p99_us", "p99", OURS), ("p999_us", "p99.9", THEIRS))
    for shift, (field, label, colour) in zip((0.27, 0, -0.27), fields):
        values = [middle(span[field] for span in spans) / 1e3 for spans in groups.values()]
        places = [-number + shift for number in range(len(groups))]
        axes.barh(places, values, height=0.25, color=colour, label=label)
        for place, value in zip(places, values):
            axes.text(value, place, f" {value:.2f}", va="center", fontsize=8)
    axes.set_yticks([-number for number in range(len(groups))], groups)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel("ms, less is better")
    axes.set_title(title, loc="left")
    axes.legend(frameon=False, fontsize="small")


def redis(axes, found: dict) -> None:
    names = {"forebay": "forebay push", "in place": "Redis, in place", "renamed": "Redis, renamed"}
    rows = []
    for way in cluster_redis.LABELS:
        side = "forebay_round" if way == "forebay" else "redis_round"
        peak = middle(one[side][way]["peak_anonymous"] for one in found["runs"]) / 1e6
        rows.append((way, f"{names[way]}\n(own memory {peak:,.0f} MB)", middle(one[side][way]["seconds"] for one in found["runs"])))
    bars(axes, rows, f"A table of {found['records'] / 1e6:g} million records replaced", "s, less is better", 1)


def live(axes, found: dict) -> None:
    """SETs a second, a group of bars a pipeline."""
    sets = found.get("sets")
    if not sets:
        return axes.axis("off")
    names = [name for name in cluster_live.LABELS if any(name in one for runs in sets.values() for one in runs)]
    shades = {"alone": REFERENCE, "redis": THEIRS}
    height = 0.8 / len(names)
    for place, name in enumerate(names):
        values = [middle(one[name] for one in runs) for runs in sets.values()]
        places = [-number - place * height for number in range(len(sets))]
        alpha = 1 - 0.3 * max(names.index(name) - 1, 0) if name not in shades else 1
        axes.barh(places, values, height=height * 0.9, color=shades.get(name, OURS), alpha=alpha, label=cluster_live.LABELS[name])
        for at, value in zip(places, values):
            axes.text(value, at, f" {value:,.0f}", va="center", fontsize=8)
    axes.set_yticks([-number - 0.4 + height / 2 for number in range(len(sets))], [f"pipelines of {depth}" for depth in sets])
    axes.margins(x=0.18)
    axes.set_xlabel("SET/s, more is better; all processes on the same two cores")
    axes.set_title("Live tables: three replicas of each partition", loc="left")
    axes.legend(frameon=False, fontsize="small", loc="upper right")
