"""After a placement by load the load shifts: what the old placement carries, how soon a plan sees it, what it ships, when clients have
their throughput back."""

import time

import place_load
from common import say, shown
from place_load import Clients

#: The hottest node has so many times the mean by what was measured, and so many times what it had before: then the shift can be noticed. It is looked
#: for so long.
IMBALANCE, MORE, NOTICE_S = 1.15, 1.1, 60
#: So long clients ask by the old shares without a break, so that nodes have told of nothing else.
REST_S = 30
#: Plans are made so long after that, each where a node still has too much: at first what is measured is a mean of the old load and the new one. So many
#: copies are left to the later ones as the earlier ones did not use.
PLANS_S, MOST_COPIES = (15, 30, 45), 20
LOOK_S, SETTLE_S = 2.0, 5
#: Throughput is back when the mean of so many seconds reaches so much of what was carried before the shift.
BACK_S, BACK = 2.0, 0.9
#: A point of what is drawn is the mean of so many seconds.
SLICE_S = 2


def noticed(table, begun: float, before: float, seen: list) -> float | None:
    """Waits until a plan first says that a node has too much; seconds from the shift on. What plans said before is seen, too."""
    while (since := time.monotonic() - begun) < NOTICE_S:
        hottest = table.plan()["hottest_before"]
        seen.append([round(time.monotonic() - begun, 1), round(hottest, 2)])
        if hottest >= max(IMBALANCE, MORE * before):
            return time.monotonic() - begun
        time.sleep(min(LOOK_S, NOTICE_S - since))
    return None


def planned(table, begun: float, notice: float | None) -> list:
    """Makes plans after the notice, or one where there was none, and carries them out."""
    plans, left = [], MOST_COPIES
    for after in PLANS_S if notice is not None else (0,):
        if notice is not None:
            time.sleep(max(0.0, begun + notice + after - time.monotonic()))
        plan = table.plan(left)
        at = time.monotonic() - begun
        if notice is None or plan["hottest_before"] >= IMBALANCE:
            table.carry_out(plan)
            plans.append({"at_s": at, **plan})
            left -= plan["copies"]
    return plans


def shift(table, shares: list, shifted: list, seconds: float) -> dict:
    """Clients come to ask by other shares than the placement was planned for; then it is planned and carried out anew."""
    with Clients(table, shares) as clients:
        time.sleep(max(SETTLE_S, REST_S - seconds))
        rest = clients.window(seconds)
        hottest = table.plan()["hottest_before"]
        seen = [[0, round(hottest, 2)]]
        begun = clients.shift(shifted)
        notice, old = clients.during(lambda: noticed(table, begun, hottest, seen))
        plans = planned(table, begun, notice)
        # Clients find the new holders.
        time.sleep(SETTLE_S)
        new = clients.window(seconds)
    before = clients.rate(rest["span"])
    right_after = [begun + 1, begun + 1 + min(seconds, PLANS_S[0])]
    found = {
        "before": before, "asked_before": clients.asked(rest["span"]),
        "old": clients.rate(right_after), "new": clients.rate(new["span"]), "asked_old": clients.asked(right_after),
        "asked_new": clients.asked(new["span"]), "noticed_s": notice, "plans": plans, "seen": seen,
        "used": {"old": place_load.figures(old), "new": place_load.figures(new)}, **clients.problems(),
        **{name: sum(plan[name] or 0 for plan in plans) for name in ("copies", "handed_over", "copied_bytes")},
    }
    found["first_s"] = plans[0]["at_s"] + plans[0]["apply_s"] if plans else None
    found["back_s"] = back(clients, begun + found["first_s"], new["span"][1], BACK * before) - begun if plans else None
    found["seconds"] = found["back_s"] - notice if plans and notice is not None else None
    last = int(new["span"][1] - begun)
    found["timeline"] = [[at + SLICE_S, round(clients.rate([begun + at, begun + at + SLICE_S]))] for at in range(0, last - SLICE_S + 1, SLICE_S)]
    say(f"  before the shift {before:,.0f} GET/s, right after it {found['old']:,.0f}, then {found['new']:,.0f}; noticed after "
        f"{shown(notice, 1)} s, first placed anew after {shown(found['first_s'], 1)} s, back after {shown(found['back_s'], 1)} s; {found['copies']} copies")
    return found


def back(clients, begun: float, end: float, wanted: float) -> float:
    """From when on GETs a second are what they are to be, for the first time since the first plan was carried out; the end where they are not."""
    at = begun
    while at + BACK_S < end and clients.rate([at, at + BACK_S]) < wanted:
        at += 0.1
    return at if at + BACK_S < end else end
