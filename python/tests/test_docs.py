"""Every public name has a docstring with parameters and examples, as `help` shows them."""

import dataclasses
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Store as Files

import forebay
import forebay.ray
import forebay.spark
from examples import run_example

ROOT = Path(__file__).resolve().parents[2]

# Members of Python's own classes need no text here.
_OWN_OF_PYTHON = (list, tuple, Exception, object)


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yields the public methods and properties of a class, except those of Python's classes."""
    of_python = {name for own in _OWN_OF_PYTHON if issubclass(cls, own) for name in dir(own)}
    for name in dir(cls):
        item = inspect.getattr_static(cls, name)
        if not name.startswith("_") and name not in of_python and not _is_field(cls, name, item):
            yield name, item


def _is_field(cls: type, name: str, item: Any) -> bool:
    return name in fields(cls) and (inspect.ismemberdescriptor(item) or not callable(item))


def fields(cls: type) -> tuple[str, ...]:
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return getattr(cls, "_fields", ())


def public() -> Iterator[tuple[str, Any, type | None]]:
    """Yields names with their items, and the class of a member."""
    for module in (forebay, forebay.spark, forebay.ray):
        for name in module.__all__:
            item = getattr(module, name)
            if name == "__version__":
                continue
            yield f"{module.__name__}.{name}", item, None
            if inspect.isclass(item):
                for member, what in members(item):
                    yield f"{module.__name__}.{name}.{member}", what, item


PUBLIC = {name: (item, of) for name, item, of in public()}


def problems(item: Any) -> list[str]:
    """Returns the faults of the text of a public item."""
    text = item.__doc__
    if not text or not text.strip():
        return ["it has no text"]
    found = [] if ">>> " in text else ["it has no example"]
    for name in fields(item) if inspect.isclass(item) else _parameters(item):
        if not re.search(rf"`{name}`|^ *{name} \(", text, re.MULTILINE):
            found.append(f"the text does not mention {name}")
    return found


def _parameters(item: Any) -> list[str]:
    if isinstance(item, property) or inspect.isgetsetdescriptor(item):
        return []
    named = inspect.signature(item).parameters.values()
    return [one.name for one in named if one.name != "self"]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_documents_its_parameters_with_an_example(name):
    assert problems(PUBLIC[name][0]) == []


def test_missing_texts_parameters_and_examples_are_found():
    def bare(one): ...

    def reported(one, two):
        """It takes `one`."""

    @dataclasses.dataclass
    class Partial:
        """`one`.

        >>> 1
        1
        """

        one: int
        two: int

    assert problems(bare) == ["it has no text"]
    assert problems(reported) == ["it has no example", "the text does not mention two"]
    assert problems(Partial) == ["the text does not mention two"]
    assert len(PUBLIC) > 120 and "forebay.Table.get_many" in PUBLIC


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    """A server with the tables of the examples of `RemoteTable`."""
    files = Files(tmp_path_factory.mktemp("docs") / "store")
    rows = [
        {"id": key, "name": name, "age": age}
        for key, name, age in [("a", "Ada", 36), ("b", "Bob", 41), ("c", "Cyd", 19)]
    ]
    forebay.push(rows, "people", key="{id}", order="ordered", store=str(files.path))
    files.run("create", "clicks", "--delta", "i64")
    files.run("create", "sessions")
    with files.serve() as server:
        yield f"redis://127.0.0.1:{server.port}"


@pytest.mark.parametrize("name", [name for name in PUBLIC if not name.startswith("forebay.ray.")])
def test_the_example_of_every_public_name_holds(name, url, tmp_path, monkeypatch):
    """The example of a method continues that of its class.

    Examples of Spark and Ray run where a session exists: in test_spark.py, test_ray.py and others.
    """
    if name.startswith("forebay.spark."):
        return
    monkeypatch.chdir(tmp_path)
    item, of = PUBLIC[name]
    names: dict[str, Any] = {"forebay": forebay, "store": str(tmp_path / "store"), "url": url}
    if of is not None:
        names = run_example(of.__doc__ or "", f"the class of {name}", names)
    names = run_example(item.__doc__, name, names)
    for opened in (names.get("opened"), names.get("connection")):
        if opened is not None:
            opened.close()


def test_the_example_of_the_package_holds(tmp_path):
    names = run_example(forebay.__doc__ or "", "forebay", {"store": str(tmp_path / "store")})
    assert "result" in names


def test_internal_methods_are_not_shown():
    own = {"go_to", "write_many", "open_url", "close_table", "live_stats", "verify_live", "of"}
    for cls in (forebay.Table, forebay.Store, forebay.TableInfo, forebay.VersionInfo):
        assert not own & set(dir(cls)) and "of_version" not in dir(cls)
    shown = subprocess.run(
        [sys.executable, "-c", "import forebay; help(forebay.Table)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in own:
        assert f" {name}(" not in shown
    assert "get_many(self, /, keys, default=None)" in shown
    assert "scan(self, /, start=None, end=None, *, limit=None, reverse=False" in shown


def test_options_show_their_types_and_meanings():
    text = inspect.getdoc(forebay.push) or ""
    assert re.search(r"^  order \(\"hashed\" \| \"ordered\"\): ", text, re.MULTILINE)
    assert re.search(r"^  store \(path\): directory or URL of the store", text, re.MULTILINE)


def test_the_stub_has_the_texts_of_the_extension_module():
    words = [sys.executable, str(ROOT / "scripts" / "stub-docs"), "--check"]
    checked = subprocess.run(words, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
