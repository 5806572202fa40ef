"""The placement paper's workloads over partitions, what they shift to, and what the paper measured under them."""

from bench_placement import TABLE_2

#: {workload: words of `forebay plan workload`}; of normal a shift changes nothing, as the range moves along.
WORDS = {
    "uniform": ["uniform"], "beta": ["beta", "--alpha", 2, "--beta", 2], "normal": ["normal"], "powerlaw": ["powerlaw", "--shape", 3],
    "gamma": ["gamma", "--shape", 5],
}
SHIFTED = {"beta": ["beta", "--alpha", 2, "--beta", 5], "powerlaw": ["powerlaw", "--shape", 5], "gamma": ["gamma", "--shape", 3]}
#: Words for people.
LABELS = {
    "uniform": "uniform", "beta": "beta 2, 2", "normal": "normal", "powerlaw": "power law 3", "gamma": "gamma 5",
}
SHIFTS = {
    "beta": "to beta 2, 5", "normal": "by a third of the partitions", "powerlaw": "to power law 5", "gamma": "to gamma 3",
}
#: The paper's table V, in the same order: requests routed to servers, max:mean.
TABLE_5 = {
    "base": [1.30, 1.75, 2.51, 2.91, 4.08], "coarse": [None, 1.40, 1.90, 1.96, 2.22], "balanced": [1.28, 1.34, 1.53, 1.38, 1.40],
}


def shares(store, workload: str, partitions: int, is_shifted: bool = False) -> list:
    """The part of the requests that each partition is to get."""
    words = SHIFTED.get(workload, WORDS[workload]) if is_shifted else WORDS[workload]
    found = store.json("plan", "workload", "--distribution", *words, "--partitions", partitions)["shares"]
    if is_shifted and workload not in SHIFTED:
        found = found[-(partitions // 3):] + found[:-(partitions // 3)]
    return found


def of_paper(table: dict, scheme: str, workload: str) -> float | None:
    return table[scheme][list(WORDS).index(workload)]


def paper_gain(scheme: str, workload: str) -> float | None:
    """The paper's throughput of a scheme, in times of its uniform placement (Table II)."""
    value = of_paper(TABLE_2, scheme, workload)
    return value and value / of_paper(TABLE_2, "base", workload)
