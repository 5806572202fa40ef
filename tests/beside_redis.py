"""Sends the same commands to a Forebay server and to redis-server, and compares the answers."""

import os
import random
import time

import redis


def seeded_rng():
    """Returns a seed and a random generator. The seed is printed; FOREBAY_TEST_SEED repeats it."""
    seed = int(os.environ.get("FOREBAY_TEST_SEED", time.time_ns() % 2**32))
    print("seed", seed)
    return seed, random.Random(seed)


def is_alike(words, ours, theirs):
    """Whether two answers are equal, apart from the time between the two requests."""
    seen = {"TTL": 1, "EXPIRETIME": 1, "PTTL": 2000, "PEXPIRETIME": 2000}
    if words[0] in seen and isinstance(ours, int) and isinstance(theirs, int):
        return ours == theirs or min(ours, theirs) > 0 and abs(ours - theirs) <= seen[words[0]]
    return ours == theirs


def answer(connection, words):
    connection.send_command(*words)
    try:
        reply = connection.read_response()
    except redis.ResponseError as error:
        return f"error: {error}"
    if words == ["EXEC"] and isinstance(reply, list):
        return [f"error: {part}" if isinstance(part, Exception) else part for part in reply]
    return reply


def compare(ours, theirs, steps, random_command):
    """Sends random commands, some in MULTI, to two clients, and checks that all answers are
    equal."""
    seed, rng = seeded_rng()
    connections = [client.connection_pool.get_connection() for client in (ours, theirs)]
    for step in range(steps):
        queued = [random_command(rng)]
        commands = queued
        if rng.random() < 0.1:
            queued = queued + [random_command(rng) for _ in range(rng.randrange(4))]
            commands = [["MULTI"], *queued, ["EXEC"]]
        for words in commands:
            answers = [answer(connection, words) for connection in connections]
            triples = [(words, *answers)]
            if words == ["EXEC"] and all(isinstance(reply, list) for reply in answers):
                triples = list(zip(queued, *answers, strict=True))
            for words, our, their in triples:
                assert is_alike(words, our, their), (seed, step, words, our, their, commands)
    for connection in connections:
        connection.disconnect()
