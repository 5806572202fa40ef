"""The output of objects in a terminal and in a notebook."""

import html.parser

import pyarrow as pa
import pytest

import forebay


class Cells(html.parser.HTMLParser):
    """Checks that tags are closed in order, and collects the texts of cells."""

    def __init__(self, text):
        super().__init__()
        self.open, self.cells, self.titles = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            self.cells[-1] += data
        else:
            self.titles.append(data)


@pytest.fixture
def people(store):
    data = pa.table({"id": [1, 2], "<name>": ["a & b", "<i>"]})
    return store, store.push(data, "people", key="{id}")


def test_a_push_shows_its_result(people):
    _, result = people
    text = f"people version 1 serves: 2 rows, {result.bytes} B, in {result.seconds:.2f} s"
    assert str(result) == text and repr(result) == f"<forebay push: {text}>"
    shown = Cells(result._repr_html_())
    assert shown.titles == ["people version 1 serves"]
    assert shown.cells[2:4] == ["rows", "2"] and f"{result.bytes} B" in shown.cells


def test_tables_and_versions_show_as_tables(people):
    store, _ = people
    store.create("clicks", delta="i64", durability="os")
    lines = repr(store.tables()).splitlines()
    assert lines[1].split()[:5] == ["table", "mode", "serving", "versions", "order"]
    assert lines[2].split()[:2] == ["clicks", "live"] and lines[3].split()[:3] == [
        "people",
        "batch",
        "1",
    ]
    shown = Cells(store._repr_html_())
    assert "clicks" in shown.cells and "hashed" in shown.cells
    table = store["people"]
    assert repr(table) == "<forebay table people version 1: 2 rows, hashed>"
    assert "column <name>" in Cells(table._repr_html_()).cells
    assert repr(store["clicks"]) == "<forebay table clicks: live, hashed, values are number>"
    assert "live" in Cells(store["clicks"]._repr_html_()).cells
    versions = table.versions()
    assert "serving" in repr(versions) and versions[0].rows == 2
    assert Cells(versions._repr_html_()).cells[-1] == "serving"
    assert repr(store) == f"<forebay store {store.url}>"


def test_an_empty_store_and_a_diff(store):
    assert repr(store.tables()) == f"Tables of {store.url}: none yet"
    Cells(store._repr_html_())
    table = {"id": [1, 2], "n": [3, 4]}
    store.push(pa.table(table), "t", key="{id}")
    store.push(pa.table({**table, "n": [3, 5]}), "t", key="{id}")
    diff = store["t"].diff(1, 2)
    assert repr(diff).splitlines()[0] == (
        "t version 1 to 2: 0 added, 0 removed, 1 changed, 1 unchanged"
    )
    assert repr(diff).splitlines()[2].split() == ["2", "changed", "n", "4", "5"]
    assert Cells(diff._repr_html_()).cells[5:] == ["2", "changed", "n", "4", "5"]


def test_errors_show_their_public_name():
    assert repr(forebay.MissingError) == "<class 'forebay.MissingError'>"
    assert issubclass(forebay.GateHeld, forebay.Error)
