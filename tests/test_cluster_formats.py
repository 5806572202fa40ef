"""Formats of the catalog: nodes read and write the previous one until an operator upgrades it."""

import json

from data import people, write

NEWEST = 4


def document(path):
    return json.loads(path.read_text().rsplit("xxh3", 1)[0])


def formats(made):
    """The format of the head, and those of all documents."""
    catalog = made.store.path / "cluster"
    head = document(catalog / "head")
    files = [catalog / "identity", catalog / "lease", *(catalog / "d").iterdir()]
    numbers = {document(path)["forebay_document"] for path in files}
    assert head["forebay_document"] == head["content"]["forebay_head"]
    return head["forebay_document"], numbers


def test_a_catalog_of_format_1_works_until_it_is_upgraded(cluster, tmp_path):
    made = cluster(4, create=["--format", "1"], node_timeout=None)
    source = write(people(200), tmp_path / "people.parquet")
    made.store.push("people", source, args=["--replicas", "2", "--partitions", "8"])
    made.store.push("people", source)
    made.store.run("rollback", "people")
    assert formats(made) == (1, {1})
    status = made.status()
    assert status["format"] == 1 and status["healthy"]
    assert any("forebay cluster upgrade" in note for note in status["notes"])

    refused = made.store.refuse("cluster", "drain", "n1", "--yes")
    assert "format 1" in refused and "forebay cluster upgrade" in refused
    refused = made.store.run("cluster", "upgrade", "--json", code=2)
    assert refused.json() == {"format": 1, "newest": NEWEST, "upgraded": False}
    assert "nothing was changed" in refused.err
    assert formats(made)[0] == 1

    done = made.store.json("cluster", "upgrade", "--yes")
    assert done == {"format": 1, "newest": NEWEST, "upgraded": True}
    again = made.store.json("cluster", "upgrade", "--yes")
    assert again == {"format": NEWEST, "newest": NEWEST, "upgraded": False}
    assert formats(made)[0] == NEWEST
    status = made.status()
    assert status["format"] == NEWEST and status["notes"] == []
    made.store.run("cluster", "drain", "n1", "--yes")
    made.store.push("people", source)
    # Unchanged documents keep their format.
    assert formats(made) == (NEWEST, {1, NEWEST})
    # A restarted node uses the new format, too.
    made.nodes[1].stop()
    made.nodes[1].start().wait_listening()
    made.wait_up()
    assert made.nodes[1].through_gateway().get("people:7") is not None


def test_new_clusters_have_the_newest_format(shared):
    made = shared(3)
    assert formats(made) == (NEWEST, {NEWEST})
    assert made.status()["notes"] == []
    done = made.store.json("cluster", "upgrade")
    assert done == {"format": NEWEST, "newest": NEWEST, "upgraded": False}
    made.store.refuse("cluster", "create", "--format", str(NEWEST + 1), code=2)
