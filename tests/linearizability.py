"""Checks whether the results that clients saw for one key are linearizable.

Each operation took effect at one moment between its question and its answer. An uncertain operation
may have taken effect at any moment after its question, or never.
"""

import dataclasses
import json
import math
from collections import defaultdict

# The search gives up beyond this many states. Tests should have few uncertain operations.
MOST_STATES = 200_000
# One in this many keys may stay unchecked because of too many uncertain operations.
MOST_UNCHECKED = 8
# Stands for values that no read returned.
UNSEEN = "(unseen)"


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation on one key. `end` is infinite if its outcome is unknown.

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
    """The value afterwards and the answer, on one server. Values are texts, and None means
    absent."""
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
    """Gives one common name to all values that uncertain writes wrote and no read returned, so that
    one may stand for all. They still matter: a deletion may have found such a value, or a
    comparison may have failed because of it. Every written value must be unique."""
    if any(one.kind == "incr" for one in operations):
        return operations
    seen = {one.result for one in operations if one.kind == "get"}
    # Some read returned the value that a comparison used.
    seen |= {one.args[0] for one in operations if one.kind == "cas"}

    def named(one):
        if not one.is_uncertain or one.kind not in ("set", "cas") or one.args[-1] in seen:
            return one
        return dataclasses.replace(one, args=(*one.args[:-1], UNSEEN))

    return [named(one) for one in operations]


def steps(operations):
    """Questions and answers in order of time. At one moment, questions come first."""
    events = [(one.begin, 0, place) for place, one in enumerate(operations)]
    events += [(one.end, 1, place) for place, one in enumerate(operations) if not one.is_uncertain]
    return [(is_end, place) for _, is_end, place in sorted(events)]


class TooUncertain(ValueError):
    """Uncertain operations allow more orders than the search can try."""


class Search:
    """Follows all states that one server may be in. A state is the value, and which of the pending
    operations are done."""

    def __init__(self, operations, first):
        self.operations = operations
        self.under_way = set()
        self.states = {(first, frozenset())}

    def next_states(self, value, done):
        """The states after one more operation."""
        tried = set()
        for place in sorted(self.under_way - done):
            one = self.operations[place]
            # Equal uncertain operations are interchangeable: only the first is tried.
            signature = (one.kind, one.args) if one.is_uncertain else place
            if signature in tried:
                continue
            tried.add(signature)
            after, answer = does(one, value)
            if one.is_uncertain or answer == one.result:
                yield after, done | {place}

    def complete(self, place):
        """Keeps the states in which this operation is done."""
        found, seen, queue = set(), set(self.states), list(self.states)
        while queue:
            state = queue.pop()
            if place in state[1]:
                found.add((state[0], state[1] - {place}))
                continue
            new = [one for one in self.next_states(*state) if one not in seen]
            seen.update(new)
            queue += new
            if len(seen) > MOST_STATES:
                raise TooUncertain("too many uncertain operations on one key to be checked")
        self.under_way.discard(place)
        self.states = found


def violation(operations, first=None):
    """None if the operations on one key are linearizable, else the first impossible answer. `first`
    is the value before all operations."""
    operations = merged(operations)
    search = Search(operations, first)
    for is_end, place in steps(operations):
        if not is_end:
            search.under_way.add(place)
            continue
        before = search.states
        search.complete(place)
        if not search.states:
            values = sorted({str(value) for value, _ in before})
            return f"{operations[place]} cannot be: the value may have been {values[:10]}"
    return None


def violations(history):
    """The keys of a history (pairs of key and operation) that are not linearizable, and why."""
    keys = defaultdict(list)
    for key, operation in history:
        keys[key].append(operation)
    found, unchecked = {}, []
    for key, operations in keys.items():
        try:
            found[key] = violation(operations)
        except TooUncertain:
            unchecked.append(key)
            # If nodes recover slowly, one of many keys may stay unchecked. The other keys are
            # checked.
            if len(unchecked) > max(len(keys) // MOST_UNCHECKED, 1) or len(keys) == 1:
                raise
    if unchecked:
        print(f"of {len(keys)} keys not checked, too many uncertain operations: {unchecked}")
    return {key: why for key, why in found.items() if why}


def show(history, key):
    """The operations on a key as text, in the order of questions."""
    ours = sorted((one for name, one in history if name == key), key=lambda one: one.begin)
    return "\n".join(json.dumps(dataclasses.asdict(one)) for one in ours)
