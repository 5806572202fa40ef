"""The commands, feature_store.yaml and programs of docs/how-to/publish-from-feast.md."""

import difflib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from feast.cli.cli import cli

import forebay

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "publish-from-feast.md"
TEXT = PAGE.read_text()
COMMANDS = re.findall(r"^    ((?:feast|forebay|cd) .*)$", TEXT, re.MULTILINE)


def feast(command: str) -> str:
    """Runs a command of Feast in this process, because each new process takes seconds."""
    assert command in COMMANDS
    done = CliRunner().invoke(cli, command.split()[1:], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def run_forebay(command: str) -> str:
    assert command in COMMANDS
    words = [sys.executable, "-m", "forebay", *command.split()[1:]]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    feast("feast init shop")
    monkeypatch.chdir(tmp_path / "shop" / "feature_repo")
    return Path()


def test_from_feast_init_to_a_served_feature(folder, capsys):
    (yaml,) = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    settings = folder / "feature_store.yaml"
    lines = [line for line in settings.read_text().splitlines() if not line.startswith("#")]
    settings.write_text(yaml)
    changed = [line for line in difflib.ndiff(lines, yaml.splitlines()) if line[0] in "+-"]
    assert 0 < len(changed) <= 20, changed
    feast("feast apply")
    served, held, pushed = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(served, names)
    assert "serving" in run_forebay(
        "forebay versions shop.driver_hourly_stats --store data/forebay"
    )
    got = run_forebay("forebay get shop.driver_hourly_stats 1001 --store data/forebay")
    assert '"_key":"1001"' in got and '"avg_daily_trips":' in got
    capsys.readouterr()
    exec(held, names)
    reported = capsys.readouterr().out
    assert "rows 5 to 1 (-80%)" in reported and "lost<20%: " in reported and "version 2" in reported
    for command, serving in (("swap", 2), ("rollback", 1)):
        (line,) = [one for one in COMMANDS if one.startswith(f"forebay {command} ")]
        run_forebay(line)
        with forebay.open("data/forebay") as store:
            assert store["shop.driver_hourly_stats"].version == serving
    exec(pushed, names)
    names["features"].teardown()
    assert len(forebay.open("data/forebay")) == 0
