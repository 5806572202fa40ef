"""Commands on replicated tables. The leader evaluates each on its newest state, and the log has its
effect."""

import threading

import pytest
import redis

MIB = 1 << 20
LIVE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "2"]


@pytest.fixture
def made(shared):
    made = shared(3)
    made.store.json("create", "t", *LIVE)
    made.store.json("create", "n", *LIVE, "--delta", "i64")
    columns = ["--column", "a:text", "--column", "b:text"]
    made.store.json("create", "r", *LIVE, "--value", "row", *columns)
    return made


def test_commands_of_a_pipeline_see_the_effects_of_those_before(made):
    with made["n1"].through_gateway() as client:
        pipe = client.pipeline(transaction=False)
        for number in range(200):
            pipe.incr("t:n").append("t:text", f"{number},").setnx(f"t:once{number % 20}", number)
        answers = pipe.execute()
        assert answers[0::3] == list(range(1, 201))
        assert answers[-2] == len(client.get("t:text"))
        assert sum(answers[2::3]) == 20
        assert client.get("t:once3") == "3"


def test_reads_of_a_counter_wait_for_blind_deltas(made):
    with made["n1"].through_gateway() as client:
        pipe = client.pipeline(transaction=False)
        for _ in range(100):
            pipe.execute_command("KV.DELTA", "n:x", 10).incr("n:x")
        answers = pipe.execute()
        assert answers[1::2] == [11 * number for number in range(1, 101)]
        assert client.get("n:x") == "1100"


def test_clients_on_one_key_lose_no_update(made):
    def count(node):
        with node.through_gateway() as client:
            for _ in range(100):
                client.incr("t:shared")
                client.hset("r:shared", node.name.replace("n1", "a").replace("n2", "b"), "x")

    nodes = [made["n1"], made["n2"]]
    threads = [threading.Thread(target=count, args=(node,)) for node in nodes for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with made["n3"].through_gateway() as client:
        assert client.get("t:shared") == "400"
        assert client.hgetall("r:shared") == {"a": "x", "b": "x"}


def test_an_effect_that_fits_no_entry_is_refused_and_changes_nothing(made):
    with made["n1"].through_gateway() as client:
        client.set("t:{v}big", "x" * (10 * MIB))
        assert client.append("t:{v}big", "x" * (10 * MIB)) == 20 * MIB
        pipe = client.pipeline(transaction=False)
        pipe.set("t:a", 1).set("t:{v}a", 1).append("t:{v}big", "y" * (5 * MIB))
        pipe.set("t:b", 2).set("t:{v}b", 2)
        answers = pipe.execute(raise_on_error=False)
        refused = answers.pop(2)
        assert all(answers) and isinstance(refused, redis.ResponseError), (answers, refused)
        assert "writes at most 25165824" in str(refused)
        assert client.strlen("t:{v}big") == 20 * MIB
        assert client.mget("t:a", "t:b") == ["1", "2"]
        # Commands whose effects fit one by one, but not together.
        pipe = client.pipeline(transaction=False)
        for number in range(4):
            pipe.set(f"t:{number}", str(number) * (10 * MIB))
        assert all(pipe.execute())
        assert [client.strlen(f"t:{number}") for number in range(4)] == [10 * MIB] * 4


def test_a_multi_may_draw_at_random(made):
    with made["n1"].through_gateway() as client:
        client.hset("r:1", mapping={"a": "x", "b": "y"})
        pipe = client.pipeline(transaction=True)
        drawn, changed = pipe.hrandfield("r:1").hset("r:1", "a", "z").execute()
        assert drawn in ("a", "b") and changed == 0
        assert client.hgetall("r:1") == {"a": "z", "b": "y"}


def test_a_watched_key_is_compared_when_exec_is_evaluated(made):
    with made["n1"].through_gateway() as one, made["n2"].through_gateway() as other:
        one.set("t:{w}1", 1)
        pipe = one.pipeline()
        pipe.watch("t:{w}1")
        other.set("t:{w}1", 2)
        pipe.multi()
        pipe.set("t:{w}2", "late")
        with pytest.raises(redis.WatchError):
            pipe.execute()
        assert one.get("t:{w}2") is None


def test_a_record_that_the_table_cannot_store_is_refused_alone(made):
    with made["n1"].through_gateway() as client:
        pipe = client.pipeline(transaction=False)
        pipe.set("t:a", 1)
        pipe.execute_command("KV.WRITE", "t:w", "INSERT", "12345678", "DELTA", "12345678")
        pipe.set("t:b", 2).execute_command("KV.WRITE", "n:w", "UPDATE", "")
        pipe.incr("n:a")
        answers = pipe.execute(raise_on_error=False)
        assert answers[0] and answers[2] and answers[4] == 1, answers
        assert all(isinstance(answers[at], redis.ResponseError) for at in (1, 3)), answers
        assert not any("UNCERTAIN" in str(answers[at]) for at in (1, 3)), answers
        # The partitions still have leaders.
        assert client.set("t:w", 1) and client.incr("n:w") == 1
        pipe = client.pipeline(transaction=True)
        pipe.set("t:{x}1", 1).execute_command("KV.WRITE", "t:{x}2", "DELTA", "12345678")
        answers = pipe.execute(raise_on_error=False)
        assert answers[0] and isinstance(answers[1], redis.ResponseError), answers
