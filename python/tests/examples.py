"""Runs the examples of docstrings."""

import doctest
import inspect
from typing import Any


def run_example(text: str, name: str, names: dict[str, Any]) -> dict[str, Any]:
    """Runs the examples of a text in one session; returns the names that they define."""
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(text), names, name, None, 0)
    reported: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    failed = runner.run(test, out=reported.append, clear_globs=False).failed
    assert failed == 0, "".join(reported)
    return test.globs
