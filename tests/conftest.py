"""Fixtures: an empty store, and one with a table of people."""

import pytest
from data import people, write
from harness import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def source(tmp_path):
    """Makes a Parquet file of people: source(count, version)."""
    made = []

    def make(count=1000, version=1, start=0):
        made.append(None)
        return write(people(count, version, start), tmp_path / f"people-{len(made)}.parquet")

    return make


@pytest.fixture
def served(store, source):
    """A store with versions 1 and 2 of `people`, 2 serving, and a server on it."""
    store.push("people", source(version=1))
    store.push("people", source(version=2))
    with store.serve() as server:
        server.store = store
        yield server
