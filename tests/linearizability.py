"""Whether what clients were told of one key can be what one server did: linearizability.

Each operation took effect at one moment between its question and its answer. One of which nobody
knows whether it was done may have taken effect at any moment after its question, or never.
"""

import dataclasses
import json
import math
from collections import defaultdict

# More ways than this are not followed: a test's history is to have fewer uncertain operations.
MOST_WAYS = 200_000
# Of so many keys one may have too many uncertain operations to be checked.
MOST_UNCHECKED = 8
# Stands for values that nobody has seen.
UNSEEN = "(unseen)"


@dataclasses.dataclass(frozen=True)
class Operation:
    """On one key. `end` is infinite where nobody knows whether it was done.

    | kind | args | result |
    | --- | --- | --- |
    | get | | the value, or None |
    | set | value | True |
    | incr | by | the number afterwards |
    | del | | how many were there |
    | cas | old, new | whether it was done |
    """

    kind: str
    args: tuple
    result: object
    begin: float
    end: float = math.inf

    @property
    def is_uncertain(self):
        return self.end == math.inf


def does(operation, value):
    """The value afterwards and the answer, on one server; values are texts, None is absent."""
    kind, args = operation.kind, operation.args
    if kind == "get":
        return value, value
    if kind == "set":
        return args[0], True
    if kind == "incr":
        number = int(value or 0) + args[0]
        return str(number), number
    if kind == "del":
        return None, int(value is not None)
    if kind == "cas":
        return (args[1], True) if value == args[0] else (value, False)
    raise ValueError(kind)


def merged(operations):
    """With one name for all values that nobody has seen and that uncertain writes wrote, so that
    one of these may stand for all. They matter all the same: a deletion may have found one, and a
    comparison may have failed by it. What is written has to be written once."""
    if any(one.kind == "incr" for one in operations):
        return operations
    seen = {one.result for one in operations if one.kind == "get"}
    # What a comparison was with, somebody saw.
    seen |= {one.args[0] for one in operations if one.kind == "cas"}

    def named(one):
        if not one.is_uncertain or one.kind not in ("set", "cas") or one.args[-1] in seen:
            return one
        return dataclasses.replace(one, args=(*one.args[:-1], UNSEEN))

    return [named(one) for one in operations]


def steps(operations):
    """Questions and answers in the order of time; at one moment questions go first."""
    events = [(one.begin, 0, place) for place, one in enumerate(operations)]
    events += [(one.end, 1, place) for place, one in enumerate(operations) if not one.is_uncertain]
    return [(is_end, place) for _, is_end, place in sorted(events)]


class TooUncertain(ValueError):
    """There are more ways in which uncertain operations may have been done than can be tried."""


class Search:
    """Follows all ways in which one server may have done the operations. A way is the value, and
    which of the operations that are under way were done."""

    def __init__(self, operations, first):
        self.operations = operations
        self.under_way = set()
        self.ways = {(first, frozenset())}

    def next(self, value, done):
        """The ways that one more operation leads to."""
        tried = set()
        for place in sorted(self.under_way - done):
            one = self.operations[place]
            # Of uncertain ones that do the same the first may stand for all.
            same = (one.kind, one.args) if one.is_uncertain else place
            if same in tried:
                continue
            tried.add(same)
            after, answer = does(one, value)
            if one.is_uncertain or answer == one.result:
                yield after, done | {place}

    def ends(self, place):
        """Keeps the ways in which an operation was done by now."""
        found, seen, left = set(), set(self.ways), list(self.ways)
        while left:
            way = left.pop()
            if place in way[1]:
                found.add((way[0], way[1] - {place}))
                continue
            new = [one for one in self.next(*way) if one not in seen]
            seen.update(new)
            left += new
            if len(seen) > MOST_WAYS:
                raise TooUncertain("too many uncertain operations on one key to be checked")
        self.under_way.discard(place)
        self.ways = found


def violation(operations, first=None):
    """None where the operations on one key are linearizable; else the first answer that cannot be.
    `first` is the value before all of them."""
    operations = merged(operations)
    search = Search(operations, first)
    for is_end, place in steps(operations):
        if not is_end:
            search.under_way.add(place)
            continue
        before = search.ways
        search.ends(place)
        if not search.ways:
            values = sorted({str(value) for value, _ in before})
            return f"{operations[place]} cannot be: the value may have been {values[:10]}"
    return None


def violations(history):
    """Of a history, pairs of key and operation, those keys that break the rule, and why."""
    keys = defaultdict(list)
    for key, operation in history:
        keys[key].append(operation)
    found, unchecked = {}, []
    for key, operations in keys.items():
        try:
            found[key] = violation(operations)
        except TooUncertain:
            unchecked.append(key)
            # One of many may be so where nodes take long to come back; then the others tell.
            if len(unchecked) > max(len(keys) // MOST_UNCHECKED, 1) or len(keys) == 1:
                raise
    if unchecked:
        print(f"of {len(keys)} keys not checked, too many uncertain operations: {unchecked}")
    return {key: why for key, why in found.items() if why}


def show(history, key):
    """What was done to a key, in the order of questions, for people."""
    ours = sorted((one for name, one in history if name == key), key=lambda one: one.begin)
    return "\n".join(json.dumps(dataclasses.asdict(one)) for one in ours)
