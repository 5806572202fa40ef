"""The drawing of `make bench-feast`: times of materialisations and of reads, a bar for each online store."""

from draw import OURS, THEIRS, plt, save

PARTS = (("materialize_s", "Materialised", "s, less is better"), ("features_p50_ms", "get_online_features of 100 entities, p50", "ms, less is better"),
         ("read_p50_ms", "online_read of 100 entities, p50", "ms, less is better"))


def stores(medians: dict, names: dict, base) -> None:
    figure, places = plt.subplots(1, len(PARTS), figsize=(15, 3.2), squeeze=False)
    labels = [names[name].replace("*", "").replace("`", "") for name in medians]
    colours = [OURS if name.startswith("forebay") else THEIRS for name in medians]
    for axes, (key, title, unit) in zip(places[0], PARTS):
        values = [found[key] for found in medians.values()]
        axes.barh(labels, values, color=colours)
        for place, value in enumerate(values):
            axes.text(value, place, f" {value:,.1f}", va="center", fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.set_title(title, loc="left")
        axes.set_xlabel(unit)
        if axes is not places[0][0]:
            axes.set_yticklabels([])
    save(figure, base)
