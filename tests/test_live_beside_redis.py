"""Random commands on a live table and on redis-server give equal answers."""

import time

from beside_redis import compare


def random_command(rng):
    key = f"kv:{{x}}{rng.randrange(6)}"
    number = str(rng.choice([0, 1, -7, 42, 2**62, -(2**62)]))
    text = rng.choice(["", "a", "10", "3.5", "-1", " 1", "05", "+5", number])
    return rng.choice(
        [
            ["SET", key, text],
            ["SET", key, text, rng.choice(["NX", "XX", "GET", "nx", "BAD"])],
            ["SET", key, text, "XX", "GET"],
            ["SETNX", key, text],
            ["GET", key],
            ["GETSET", key, text],
            ["GETDEL", key],
            ["DEL", key, f"kv:{{x}}{rng.randrange(6)}"],
            ["EXISTS", key, key],
            ["INCR", key],
            ["DECR", key],
            ["INCRBY", key, text],
            ["DECRBY", key, rng.choice([number, str(-(2**63))])],
            ["SET", f"{key}f", rng.choice(["1", "2.5", "x"])],
            ["INCRBYFLOAT", f"{key}f", rng.choice(["1.5", "-0.25", "x", "3"])],
            ["GET", f"{key}f"],
            ["APPEND", key, text],
            ["STRLEN", key],
            ["MSET", key, text, f"kv:{{x}}{rng.randrange(6)}", text],
            ["MSET", key, text, key],
            *random_expiries(rng, key, text),
            ["TYPE", key],
            ["GETRANGE", key, str(rng.randrange(-4, 4)), str(rng.randrange(-4, 4))],
        ]
    )


def random_expiries(rng, key, text):
    """Commands on expiry. Moments are far in the past or future, so none passes during the test."""
    now_s = int(time.time())
    # Durations differ enough that GT and LT do not depend on milliseconds.
    far_s = rng.randrange(10_000, 10**8)
    seconds = str(rng.choice([0, -1, far_s, far_s, 2**62, "x", "1.5"]))
    moment_s = rng.choice([1, now_s - 10, now_s + 1000, now_s + 2000, 2**62, 0, -5])
    unit = rng.choice(["EX", "PX", "EXAT", "PXAT", "ex", "px"])
    lifetime = {"EX": far_s, "PX": far_s * 1000, "EXAT": moment_s, "PXAT": moment_s * 1000}
    time_ = rng.choice([str(lifetime[unit.upper()])] * 3 + [seconds])
    only = rng.choice([[], [], ["NX"], ["XX"], ["GT"], ["lt"], ["NX", "GT"], ["GT", "LT"], ["B"]])
    more = [["NX"], ["GET"], ["KEEPTTL"], ["PERSIST"], ["XX", "GET"], ["EX"]]
    more.append(["PX", str(far_s * 1000)])
    return [
        ["SET", key, text, unit, time_],
        ["SET", key, text, unit, time_, *rng.choice(more)],
        ["SET", key, text, *rng.choice(more), unit, time_],
        ["SET", key, text, "KEEPTTL"],
        ["SETEX", key, seconds, text],
        ["PSETEX", key, str(rng.choice([0, far_s * 1000])), text],
        ["GETEX", key],
        ["GETEX", key, unit, time_],
        ["GETEX", key, rng.choice(["PERSIST", "KEEPTTL", "EX"])],
        ["GETEX", key, unit, time_, "PERSIST"],
        ["EXPIRE", key, seconds, *only],
        ["PEXPIRE", key, str(rng.choice([-1, far_s * 1000, 2**63 - 1])), *only],
        ["EXPIREAT", key, str(moment_s), *only],
        ["PEXPIREAT", key, str(moment_s * 1000), *only],
        ["PERSIST", key],
        [rng.choice(["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"]), key],
        [rng.choice(["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"]), key],
    ]


def test_answers_equal_those_of_redis(live, real):
    compare(live.client(decode_responses=True), real, 5000, random_command)
