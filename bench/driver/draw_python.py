"""The drawing of bench-python."""

import draw
import matplotlib.pyplot as plt
import python_stores
from draw import OURS, THEIRS

TITLES = {"get": "get", "get_many 100": "get_many of 100 keys", "get_many 10000": "get_many of 10,000 keys", "scan": "scan to Arrow"}


def python(body: dict, base) -> None:
    labels = {store.name: store.label for store in python_stores.STORES}
    figure, grid = plt.subplots(2, 3, figsize=(17, 7.5))
    for axes, (case, title) in zip(grid.flat, TITLES.items()):
        rows = [(name, labels[name], 1e6 / measured[case]["1"]) for name, measured in body["contenders"].items()]
        logarithmic(axes, rows, f"{title}, one thread")
    threads(grid.flat[4], body["contenders"], labels)
    if body.get("waits"):
        waits(grid.flat[5], body["waits"], labels)
    else:
        grid.flat[5].axis("off")
    draw.save(figure, base)


def logarithmic(axes, rows: list, title: str) -> None:
    """Bars as those of `draw.bars`, of times that are a thousand times apart."""
    rows = sorted(rows, key=lambda row: row[2], reverse=True)
    axes.barh([row[1] for row in rows], [row[2] for row in rows], color=[draw.colour(row[0]) for row in rows])
    for place, row in enumerate(rows):
        axes.text(row[2] * 1.1, place, f"{row[2]:,.2f}", va="center")
    axes.set_xscale("log")
    axes.set_xlim(min(row[2] for row in rows) / 3, 6 * rows[0][2])
    axes.set_title(title, loc="left")
    axes.set_xlabel("us a row, less is better")


def threads(axes, contenders: dict, labels: dict) -> None:
    """How much more two threads do than one."""
    gains = {name: measured["get_many 10000"]["2"] / measured["get_many 10000"]["1"] for name, measured in contenders.items()}
    rows = [(name, labels[name], gain) for name, gain in gains.items()]
    draw.bars(axes, rows, "get_many of 10,000 keys: two threads / one", "times, more is better", 2, True)
    axes.axvline(1, color="black", linewidth=0.6)


def waits(axes, found: list, labels: dict) -> None:
    rows = list(reversed(found))
    names = {"none": "nothing", **labels}
    texts = [names[w["store"]] + ("" if w["collected"] else ", no collector") + f", {w['keys']:,}" for w in rows]
    colours = [OURS if w["store"] == "forebay" else THEIRS for w in rows]
    axes.barh(texts, [w["max_ms"] for w in rows], color=colours)
    axes.plot([w["p99_ms"] for w in rows], range(len(rows)), "|", color="black", markersize=9, label="p99")
    axes.set_xscale("log")
    for place, w in enumerate(rows):
        axes.text(w["max_ms"] * 1.08, place, f"{w['max_ms']:,.1f}", va="center")
    axes.set_xlim(right=12 * max(w["max_ms"] for w in rows))
    axes.axvline(10, color="#b5651d", linewidth=0.8, label="target")
    axes.set_title("most that another thread waits for get_many", loc="left")
    axes.set_xlabel("ms, less is better")
    axes.legend(frameon=False, loc="upper right")
