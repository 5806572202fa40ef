"""The drawing of `make bench-place`: throughput beside the paper's Table II, what clients wait, what becomes of it when the load shifts."""

import place_tell
from draw import OURS, REFERENCE, THEIRS, grouped, legend, plt, save
from place_workloads import LABELS, SHIFTS, paper_gain

COLOURS = {"uniform": THEIRS, "balanced": "#5fae8f", "ours": OURS}
SHADES = {"beta": "#4c78a8", "normal": "#b5651d", "powerlaw": "#8d6bb0", "gamma": OURS}


def place(found: dict, base) -> None:
    all_of = place_tell.by_workload(found)
    shifted = {run["workload"]: run["shift"] for run in reversed(found["runs"]) if "shift" in run}
    drawings = [(throughput, all_of), (gains, all_of), (waits, place_tell.waited(all_of)), (shifts, shifted)]
    drawings = [(work, what) for work, what in drawings if what]
    lines = (len(drawings) + 1) // 2
    figure, grid = plt.subplots(lines, 2, figsize=(14, 4.2 * lines), squeeze=False)
    places = [axes for line in grid for axes in line]
    for axes, (work, what) in zip(places, drawings):
        work(axes, what)
    for axes in places[len(drawings):]:
        axes.axis("off")
    save(figure, base)


def kept(runs: list, base) -> None:
    """Throughput after the shift, in parts of that before."""
    figure, axes = plt.subplots(figsize=(8, 4.2))
    for run in runs:
        times, rates = zip(*run["timeline"])
        label = f"{LABELS[run['workload']]} {SHIFTS[run['workload']]}"
        axes.plot(times, [rate / run["before"] for rate in rates], color=SHADES[run["workload"]], label=label)
    axes.axhline(0.9, color=REFERENCE, linestyle="--", linewidth=1)
    axes.set_ylim(bottom=0)
    legend(axes, "A load shifts on a cluster that keeps itself balanced (line: 0.9)", "s after the shift", "GETs a second / before the shift")
    save(figure, base)


def by_placement(axes, all_of: dict, of, digits: int = 0, factor: float = 1) -> None:
    """A group for each workload, a bar for each placement."""
    names = place_tell.all_placements(all_of)
    values = {name: [of(runs, name) for runs in all_of.values()] for name in names}
    grouped(axes, list(all_of), [(name, COLOURS[name], [value and value * factor for value in values[name]]) for name in names], digits)
    axes.set_xticks(range(len(all_of)), [LABELS[workload] for workload in all_of])


def throughput(axes, all_of: dict) -> None:
    by_placement(axes, all_of, place_tell.carried, 1, 1e-3)
    legend(axes, "What a placement carries", "", "thousand GETs a second, more is better")


def gains(axes, all_of: dict) -> None:
    schemes = {"coarse": "#efe6cf", "balanced": REFERENCE}
    sides = [(f"the paper: {scheme}", colour, [paper_gain(scheme, workload) for workload in all_of]) for scheme, colour in schemes.items()]
    names = place_tell.all_placements(all_of)[1:]
    sides += [(name, COLOURS[name], [place_tell.gain(runs, name) for runs in all_of.values()]) for name in names]
    grouped(axes, list(all_of), sides, 2)
    axes.axhline(1, color="#b5651d", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(all_of)), [LABELS[workload] for workload in all_of])
    legend(axes, "Throughput / that of the uniform placement (the paper's Table II)", "", "times, more is better")


def waits(axes, all_of: dict) -> None:
    by_placement(axes, all_of, lambda runs, name: place_tell.value(runs, "placements", name, "latency", "p99"), 1)
    legend(axes, "What clients wait at the same rate", "", "p99, ms, less is better")


def shifts(axes, found: dict) -> None:
    for workload, shift in found.items():
        colour = SHADES[workload]
        times, rates = zip(*shift["timeline"])
        axes.plot(times, [rate / 1e3 for rate in rates], color=colour, label=f"{LABELS[workload]} {SHIFTS[workload]}")
        lines = [(shift["noticed_s"], ":"), *((plan["at_s"] + plan["apply_s"], "--") for plan in shift["plans"])]
        for at, line in lines:
            if at is not None:
                axes.axvline(at, color=colour, linewidth=0.8, linestyle=line)
    axes.set_ylim(bottom=0)
    legend(axes, "After the load shifts (dots: noticed, dashes: placed anew)", "s", "thousand GETs a second")
