"""The drawing of `make bench-cores`."""

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

NAMES = {"push": "rows pushed", "get": "GETs, batch table", "set": "SETs, live table"}


def cores(body: dict, base) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.5))
    most = 1
    for part, name in NAMES.items():
        found = {int(cores): value for cores, value in body["by_cores"][part].items()}
        if not found:
            continue
        first = found[min(found)]
        most = max(most, *found)
        axes.plot(list(found), [value / first for value in found.values()], marker="o", label=f"{name} (one core: {first:,.0f} a second)")
    axes.plot([1, most], [1, most], color="grey", linestyle=":", label="as many times as cores")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    ticks = [1 << power for power in range(most.bit_length())]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)
    axes.set_xlabel("cores")
    axes.set_ylabel("times one core")
    axes.legend(frameon=False, fontsize=8)
    axes.set_title(f"{body['rows']:,} rows; {body['machine']['processor']}", fontsize=9)
    figure.tight_layout()
    figure.savefig(base.with_suffix(".svg"))
    plt.close(figure)
