"""The metrics of cluster nodes are correct, and the shipped alert rules use only existing ones."""

import re
import shutil
import time
from pathlib import Path

import pytest
import yaml
from data import people, write
from harness import Store, wait_for
from secured import Secured

RULES = Path(__file__).parent.parent / "deploy/alerts.yml"
RULE_TESTS = RULES.with_name("alerts_test.yml")
DOCUMENTS = RULES.parent.parent
# Space that stays free beside fetched data.
SPARE_BYTES = 16 << 20
LIVE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "6"]


def rules():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def samples(page):
    """The names of metrics, and their labels."""
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    split = [re.match(r"(\w+)(?:\{(.*)\})? \S+$", line) for line in lines if line]
    return [(found[1], dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))) for found in split]


def value(node, name, **labels):
    inner = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return node.metric(f"{name}{{{inner}}}" if inner else name)


def states(node):
    page = samples(node.ask("/metrics")[1])
    known = [labels["state"] for name, labels in page if name == "forebay_cluster_node_states"]
    counts = {state: value(node, "forebay_cluster_node_states", state=state) for state in known}
    return {state: count for state, count in counts.items() if count}


def holders(node, table):
    """For each range, the ports of the nodes that have it."""
    with node.client(decode_responses=True) as client:
        ranges = client.execute_command("KV.MAP", table)
    return [[int(address.rsplit(":", 1)[1]) for address in row[2]] for row in ranges]


@pytest.fixture
def made(shared, tmp_path):
    """Three nodes. Table `twice` has two replicas, and `once` has one."""
    made = shared(3)
    made.path = write(people(300), tmp_path / "people.parquet")
    for table, replicas in (("twice", "2"), ("once", "1")):
        words = ["--replicas", replicas, "--partitions", "6"]
        made.store.push(table, made.path, args=words)
    return made


@pytest.fixture
def page(made, tmp_path):
    """All metrics of nodes after some commands, and those of a server with a certificate."""
    made.store.run("create", "carts", *LIVE)
    with made.nodes[0].through_gateway() as client:
        for i in range(50):
            client.get(f"once:{i}")
    secured = Secured(tmp_path)
    store = Store(tmp_path / "alone")
    store.push("people", made.path)
    with store.serve(*secured.words()) as server:
        alone = secured.page(f"https://127.0.0.1:{server.http}/metrics")
    return samples(made.nodes[0].ask("/metrics")[1]) + samples(alone)


# Metrics of servers that pull (test_pull.py), and of backups (test_describe.py).
OTHER_METRICS = {"forebay_pull_failing", "forebay_table_backup_timestamp_seconds"}


def test_the_rules_use_only_existing_metrics(page):
    names = {name for name, _ in page}
    asked = set()
    for rule in rules():
        expression = rule["expr"]
        for name, matchers in re.findall(r"(?<![:\w])(forebay_\w+)(?:\{([^}]*)\})?", expression):
            asked.add(name)
            assert name in names | OTHER_METRICS, rule
            if name in OTHER_METRICS:
                continue
            for label, sign, text in re.findall(r'(\w+)(=|!=)"([^"]*)"', matchers):
                having = [labels[label] for found, labels in page if found == name]
                fits = [one for one in having if (one == text) == (sign == "=")]
                assert fits, f"{label}{sign}{text} of {rule}"
                assert sign == "=" or text in having or text == "", rule
    assert {name for name in names if name.startswith("forebay_cluster_")} - asked == {
        # People read these beside others. The rules use the states.
        "forebay_cluster_nodes",
        "forebay_cluster_rollouts",
        # Replicas and problems of one node. The rules use the table's partitions.
        "forebay_cluster_replicas",
        "forebay_cluster_leaderless_partitions",
        "forebay_cluster_replica_lag_entries",
        # How replicas caught up, and the log that is kept for them. People read these.
        "forebay_cluster_log_bytes",
        "forebay_cluster_copies_total",
        "forebay_cluster_log_sent_bytes_total",
    }


def test_each_rule_has_a_test_and_a_document():
    tests = RULE_TESTS.read_text()
    for rule in rules():
        if "record" in rule:
            continue
        assert f'alertname="{rule["alert"]}"' in tests, rule
        file, _, anchor = rule["annotations"]["document"].partition("#")
        titles = re.findall(r"^#+ (.*)$", (DOCUMENTS / file).read_text(), re.M)
        anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
        assert anchor in anchors, rule


def test_metrics_of_a_healthy_cluster(made):
    revisions = lambda name: {value(node, name) for node in made.nodes}  # noqa: E731
    wait_for(
        lambda: (
            revisions("forebay_cluster_revision")
            == revisions("forebay_cluster_served_revision")
            == {made.status()["revision"]}
        ),
        "all serve the newest revision",
    )
    coordinators = [node for node in made.nodes if value(node, "forebay_cluster_coordinator")]
    assert coordinators == [made.coordinator()]
    for node in made.nodes:
        assert states(node) == {"up": 3}
        assert value(node, "forebay_cluster_catalog_age_seconds") < 10
        for table in ("twice", "once"):
            assert value(node, "forebay_cluster_table_version", table=table) == 1
            assert value(node, "forebay_table_version", table=table) == 1
            assert value(node, "forebay_cluster_missing_replicas", table=table) == 0
            assert value(node, "forebay_cluster_unavailable_ranges", table=table) == 0
        assert value(node, "forebay_cluster_rollouts") == 0
        assert value(node, "forebay_cluster_rollout_age_seconds") == 0
        largest = max(value(node, "forebay_table_file_bytes", table=t) for t in ("twice", "once"))
        assert value(node, "forebay_cluster_cache_needed_bytes") == largest + SPARE_BYTES
        free, disk = value(node, "forebay_cluster_cache_free_bytes"), shutil.disk_usage(node.cache)
        assert abs(free - disk.free) < max(4 << 30, disk.total / 20)
        assert value(node, "forebay_certificate_remaining_seconds") is None

    made.store.push("twice", made.path, args=["--partitions", "6"])
    for node in made.nodes:
        assert value(node, "forebay_cluster_table_version", table="twice") == 2
        assert value(node, "forebay_table_version", table="twice") == 2


def test_metrics_of_forwarded_commands(made):
    node = made.nodes[0]
    asked_before = value(node, "forebay_commands_routed_total", outcome="answered")
    ran_before = value(node, "forebay_command_seconds_count", table="once", command="get") or 0
    with node.through_gateway() as client:
        for i in range(300):
            client.get(f"once:{i}")
    asked = value(node, "forebay_commands_routed_total", outcome="answered") - asked_before
    ran = value(node, "forebay_command_seconds_count", table="once", command="get")
    assert ran - ran_before == 300
    # Each of three nodes has about a third, and 300 keys use slots of all nodes.
    assert 100 < asked < 300


def test_metrics_of_a_killed_and_a_stopped_node(made):
    killed = next(node for node in made.nodes if node is not made.coordinator())
    others = [node for node in made.nodes if node is not killed]
    lost = {table: holders(others[0], table) for table in ("twice", "once")}
    killed.kill()
    wait_for(
        lambda: all(states(node) == {"up": 2, "down": 1} for node in others),
        lambda: f"{killed.name} is down: {[states(node) for node in others]}",
    )
    missing = {
        table: sum(ports.count(killed.port) for ports in ranges) for table, ranges in lost.items()
    }
    assert all(missing.values())
    for node in others:
        for table in ("twice", "once"):
            found = value(node, "forebay_cluster_missing_replicas", table=table)
            assert found == missing[table], table
        assert value(node, "forebay_cluster_unavailable_ranges", table="twice") == 0
        assert value(node, "forebay_cluster_unavailable_ranges", table="once") == missing["once"]

    made.store.run("cluster", "pause", killed.name)
    wait_for(
        lambda: all(states(node) == {"up": 2, "paused": 1} for node in others), "paused"
    )
    killed.start().wait_listening()
    made.wait_up()
    wait_for(lambda: all(states(node).get("up") == 3 for node in made.nodes), "all up")
    stopped, watching = others
    assert stopped.stop() == 0
    wait_for(
        lambda: states(watching) == {"up": 2, "left": 1},
        lambda: f"it left: {states(watching)}",
    )


def test_metrics_of_a_live_table_while_nodes_die(made):
    made.store.run("create", "carts", *LIVE)

    def found(name):
        nodes = made.alive()
        return [value(node, f"forebay_cluster_{name}", table="carts") for node in nodes]

    wait_for(lambda: sum(found("led_partitions")) == 6, "all partitions have leaders")
    assert found("partitions") == found("replicas") == [6, 6, 6]
    with made.nodes[0].through_gateway() as client:
        for i in range(50):
            client.set(f"carts:{i}", i)
    for name in ("leaderless_partitions", "unhealthy_replicas", "unreachable_replicas"):
        assert found(name) == [0, 0, 0], name
    wait_for(lambda: found("replica_lag_entries") == [0, 0, 0], "followers have all entries")

    last = made.coordinator()
    first, second = (node for node in made.nodes if node is not last)
    first.kill()
    wait_for(
        lambda: sum(found("led_partitions")) == 6 == sum(found("unreachable_replicas")),
        lambda: f"other nodes lead: {found('led_partitions')}, {found('unreachable_replicas')}",
    )
    second.kill()
    wait_for(
        lambda: found("leaderless_partitions") == [6] and found("led_partitions") == [0],
        lambda: f"no node leads: {found('leaderless_partitions')}",
    )


def test_metrics_of_a_waiting_rollout(made):
    killed = next(node for node in made.nodes if node is not made.coordinator())
    other = next(node for node in made.nodes if node is not killed)
    killed.kill()
    words = ["push", "once", made.path, "--key", "{id}", "--partitions", "6", "--json"]
    pushing = made.store.start(*words)
    wait_for(lambda: value(other, "forebay_cluster_rollouts") == 1, "a rollout")
    begun = time.monotonic()
    wait_for(
        lambda: value(other, "forebay_cluster_rollout_age_seconds") >= 2,
        "its age rises",
    )
    assert value(other, "forebay_cluster_rollout_age_seconds") < 60 + time.monotonic() - begun
    # The needed space does not count the version that is being rolled out twice.
    resting = value(other, "forebay_table_file_bytes", table="twice")
    assert value(other, "forebay_cluster_cache_needed_bytes") == resting + SPARE_BYTES
    assert value(other, "forebay_cluster_table_version", table="once") == 1
    made.store.run("cluster", "cancel", made.table("once")["rollout"]["request"])
    assert made.store.finish(pushing).code == 5
    wait_for(lambda: value(other, "forebay_cluster_rollouts") == 0, "the rollout is over")
    assert value(other, "forebay_cluster_rollout_age_seconds") == 0
