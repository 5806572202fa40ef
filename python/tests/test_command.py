"""The binary in the wheel, and the documents' examples."""

import doctest
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import forebay

ROOT = Path(__file__).resolve().parents[2]
MODULE = [sys.executable, "-m", "forebay"]
SCRIPT = [os.path.join(sysconfig.get_path("scripts"), "forebay")]


@pytest.mark.parametrize("command", [MODULE, SCRIPT], ids=["module", "script"])
def test_the_command_is_the_binary(command, tmp_path):
    def run(*words):
        return subprocess.run([*command, *words], capture_output=True, text=True, cwd=tmp_path)

    assert run("--version").stdout == f"forebay {forebay.__version__}\n"
    (tmp_path / "a.csv").write_text("id,n\n1,2\n")
    pushed = run("push", "t", "a.csv", "--key", "{id}", "--json")
    assert pushed.returncode == 0 and json.loads(pushed.stdout)["rows"] == 1
    assert run("get", "t", "1").stdout == '{"id":1,"n":2}\n'
    assert run("nonsense").returncode == 2
    assert forebay.open(tmp_path / "forebay-data")["t"][1] == {"id": 1, "n": 2}


@pytest.mark.parametrize("page", ["python.md", "python-push.md"])
def test_the_examples_of_the_guide_hold(page, tmp_path, monkeypatch):
    """Runs the Python blocks of a page of docs/reference in order, in one session."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "reference" / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) > 5
    names = {"__name__": "guide"}
    for block in blocks:
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, page, None, 0)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            result = runner.run(test, clear_globs=False)
            assert result.failed == 0
            names.update(test.globs)
        else:
            exec(block, names)
