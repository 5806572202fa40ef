"""The drawing of `make bench-live`: the insertion rate over time, and the rates side by side."""

from draw import OURS, bars, plt, save

LABELS = {
    "external-sort": "external merge sort (no store)",
    "forebay": "Forebay, no log",
    "forebay-unmapped": "Forebay, no log, files not mapped",
    "forebay-os": "Forebay, log, os",
    "forebay-100ms": "Forebay, log, synced every 100 ms",
    "rocksdb-universal": "RocksDB universal, no log",
    "rocksdb-leveled": "RocksDB leveled, no log",
    "rocksdb-universal-log": "RocksDB universal, log",
    "rocksdb-leveled-log": "RocksDB leveled, log",
    "fjall": "fjall (with its journal)",
    "lmdb": "LMDB, not synced",
    "redb": "redb",
    "rocksdb-get-put": "RocksDB, get and put, no log",
    "rocksdb-merge": "RocksDB, merge operator, no log",
}


def live(body: dict, base) -> None:
    figure, grid = plt.subplots(1, 3, figsize=(19, 6), gridspec_kw={"width_ratios": [1.5, 1, 1]})
    insertion_rate(grid[0], body["upserts"])
    results = body["upserts"]["contenders"]
    rows = [(name, LABELS[name], r["written"] / r["settled_seconds"] / 1e6) for name, r in results.items()]
    bars(grid[1], rows, "upserts until at rest", "million a second, more is better", 2, True)
    counted = body["counting"]["contenders"]
    counted = {name: r for name, r in counted.items() if r.get("write_seconds")}
    rows = [(name, LABELS[name], r["done"] / r["write_seconds"] / 1e6) for name, r in counted.items()]
    bars(grid[2], rows, "increments, Zipf-distributed", "million a second, more is better", 2, True)
    save(figure, base)


#: Distinct by hue and dash: contenders of one family share the hue, those with a log are dashed.
LIVE_STYLES = {
    "forebay": (OURS, "-"), "forebay-os": (OURS, "--"), "forebay-100ms": (OURS, ":"),
    "rocksdb-universal": ("#c0504d", "-"), "rocksdb-universal-log": ("#c0504d", "--"),
    "rocksdb-leveled": ("#e39b3c", "-"), "rocksdb-leveled-log": ("#e39b3c", "--"),
    "fjall": ("#7b5ea7", "--"), "lmdb": ("#3a76af", "-"), "redb": ("#6b7683", "-"),
}


def insertion_rate(axes, upserts: dict) -> None:
    """The rate while the store grows, as the paper's first table has it; a store that was stopped ends early."""
    for name, (hue, dash) in LIVE_STYLES.items():
        result = upserts["contenders"].get(name)
        if not result:
            continue
        millions, rates = rates_of(result)
        axes.plot(millions, rates, dash, color=hue, linewidth=2.2 if name.startswith("forebay") else 1.2, label=LABELS[name])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda rate, _: f"{rate:g}")
    axes.set_xlim(0, upserts["records"] / 1e6)
    axes.set_xlabel("million upserts in the store")
    axes.set_ylabel("million upserts a second")
    axes.set_title("Insertion rate", loc="left")
    axes.grid(True, which="major", linewidth=0.3)
    axes.legend(frameon=False, fontsize=8, ncol=3, loc="upper center", bbox_to_anchor=(0.5, -0.13))


#: Seconds are taken together until there are at most so many points.
POINTS = 60


def rates_of(result: dict) -> tuple[list, list]:
    """How much was in the store, and how fast it grew there; of long runs, means over some seconds."""
    points = [p for p in result["curve"] if p["second"] <= result["write_seconds"]] or result["curve"][:1]
    step = -(-len(points) // POINTS)
    points = [{"second": 0.0, "done": 0}, *points[step - 1::step]]
    pairs = list(zip(points, points[1:]))
    return (
        [(a["done"] + b["done"]) / 2e6 for a, b in pairs],
        # Where nothing was written for that long it is drawn at the floor.
        [max((b["done"] - a["done"]) / (b["second"] - a["second"]) / 1e6, 1e-4) for a, b in pairs],
    )
