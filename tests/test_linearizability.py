"""The history checker finds bad histories and accepts good ones."""

import math

import linearizability
import pytest
from beside_redis import seeded_rng
from linearizability import Operation, TooUncertain, does, violation, violations

NEVER = math.inf


def get(value, begin, end):
    return Operation("get", (), value, begin, end)


def put(value, begin, end=NEVER):
    return Operation("set", (value,), True, begin, end)


def incr(result, begin, end=NEVER):
    return Operation("incr", (1,), result, begin, end)


def cas(old, new, done, begin, end=NEVER):
    return Operation("cas", (old, new), done, begin, end)


def deleted(result, begin, end=NEVER):
    return Operation("del", (), result, begin, end)


GOOD = {
    "one after the other": [put("a", 0, 1), get("a", 2, 3)],
    "a read beside a write sees either": [put("a", 0, 5), get(None, 1, 2), get("a", 3, 4)],
    "an uncertain write is seen late": [put("a", 0), get(None, 5, 6), get("a", 7, 8)],
    "an uncertain write is never seen": [put("b", 0, 1), put("a", 2), get("b", 5, 6)],
    "an uncertain increment counts or does not": [incr(1, 0, 1), incr(None, 2), incr(3, 4, 5)],
    "an uncertain increment comes later": [incr(None, 0), incr(1, 1, 2), incr(3, 3, 4)],
    "an uncertain deletion": [put("a", 0, 1), deleted(None, 2), get("a", 3, 4), get(None, 5, 6)],
    "a compare-and-set": [put("a", 0, 1), cas("a", "b", True, 2, 3), cas("a", "c", False, 4, 5)],
    "an uncertain write that nobody read was deleted": [put("a", 0), deleted(1, 2, 3)],
    "a comparison fails because of an uncertain write": [put("b", 0, 1), put("a", 2)]
    + [cas("b", "c", False, 4, 5), deleted(1, 6, 7)],
    "the next operation saw an uncertain one": [
        put("a", 0, 1),
        cas("a", "b", None, 2),
        cas("b", "c", True, 4, 5),
    ],
}

BAD = {
    "a write is lost": [put("a", 0, 1), get(None, 2, 3)],
    "a write comes back": [put("a", 0, 1), put("b", 2, 3), get("b", 4, 5), get("a", 6, 7)],
    "a read is stale": [put("a", 0, 1), put("b", 2, 3), get("a", 4, 5)],
    "reads go back": [put("a", 0, 9), get("a", 1, 2), get(None, 3, 4)],
    "a refused write appears": [put("b", 0, 1), get("a", 2, 3)],
    "an uncertain write before it was asked": [get("a", 0, 1), put("a", 2)],
    "an uncertain write is done twice": [put("a", 0), put("b", 1, 2), get("a", 3, 4)]
    + [put("c", 5, 6), get("a", 7, 8)],
    "one uncertain write is deleted twice": [put("a", 0), deleted(1, 2, 3), deleted(1, 4, 5)],
    "an increment is doubled": [incr(1, 0, 1), incr(3, 2, 3)],
    "an uncertain increment is doubled": [incr(None, 0), incr(3, 1, 2)],
    "an increment is lost": [incr(1, 0, 1), incr(1, 2, 3)],
    "two increments return the same number": [incr(1, 0, 5), incr(1, 1, 6)],
    "a deleted key is deleted again": [put("a", 0, 1), deleted(1, 2, 3), deleted(1, 4, 5)],
    "two win one compare-and-set": [put("a", 0, 1)]
    + [cas("a", "b", True, 2, 9), cas("a", "c", True, 3, 8)],
    "a compare-and-set was refused wrongly": [put("a", 0, 1), cas("a", "b", False, 2, 3)],
}


@pytest.mark.parametrize("name", GOOD)
def test_good_histories_pass(name):
    assert violation(GOOD[name]) is None


@pytest.mark.parametrize("name", BAD)
def test_bad_histories_are_found(name):
    assert violation(BAD[name])


def test_keys_are_checked_separately():
    history = [("x", put("a", 0, 1)), ("y", get("a", 2, 3)), ("x", get("a", 2, 3))]
    assert list(violations(history)) == ["y"]


def test_one_key_of_several_may_have_too_many_uncertain_operations(monkeypatch, capsys):
    monkeypatch.setattr(linearizability, "MOST_STATES", 100)
    doubtful = [put(f"{number}", 0) for number in range(12)]
    doubtful += [get(f"{number}", 0, 6) for number in range(12)]
    with pytest.raises(TooUncertain):
        violations([("a", one) for one in doubtful])
    wrong = [("b", put("x", 0, 1)), ("b", get("y", 2, 3))]
    assert list(violations([("a", one) for one in doubtful] + wrong)) == ["b"]
    assert "not checked" in capsys.readouterr().out
    with pytest.raises(TooUncertain):
        violations([(key, one) for key in "acd" for one in doubtful] + wrong)


def random_history(rng, count):
    """The results that clients of one server see. Each client does its next operation at a random
    moment."""
    done, free = [], [0.0] * 4
    for number in range(count):
        client = rng.randrange(4)
        begin = free[client] + rng.random()
        moment = begin + rng.random()
        free[client] = end = moment + rng.random()
        kinds = [("get", ()), ("set", (str(number),)), ("incr", (1,)), ("del", ())]
        done.append((moment, begin, end, *rng.choice(kinds)))
    value, history = None, []
    for _, begin, end, kind, args in sorted(done):
        is_lost = rng.random() < 0.1
        if is_lost and rng.random() < 0.5:
            history.append(Operation(kind, args, None, begin))
            continue
        one = Operation(kind, args, None, begin, NEVER if is_lost else end)
        value, answer = does(one, value)
        history.append(Operation(kind, args, answer, begin, one.end))
    return history


def test_random_histories_pass_and_those_with_a_wrong_answer_fail():
    seed, rng = seeded_rng()
    for _ in range(100):
        history = random_history(rng, 40)
        assert violation(history) is None, seed
        places = [place for place, one in enumerate(history) if not one.is_uncertain]
        place = rng.choice(places)
        one = history[place]
        wrong = Operation(one.kind, one.args, "never written", one.begin, one.end)
        assert violation([*history[:place], wrong, *history[place + 1 :]]), (seed, wrong)
