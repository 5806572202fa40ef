"""examples/cron: the script as cron runs it, with the binary."""

import os
import signal
import subprocess
import time

import pytest
from conftest import EXAMPLES, PATH, Holder, ask, run, serving, write_people


class Job:
    """The example's files with this test's paths, and its line of the crontab."""

    def __init__(self, directory, store):
        self.source, self.log = directory / "people.parquet", directory / "people.log"
        self.settings = directory / "people.conf"
        settings = (EXAMPLES / "cron" / "people.conf").read_text()
        for theirs, ours in [
            ("/srv/forebay", store),
            ("/srv/exports/people-*.parquet", self.source),
            ("/var/log/forebay/people.log", self.log),
        ]:
            assert theirs in settings
            settings = settings.replace(theirs, str(ours))
        self.settings.write_text(settings)
        (directory / "publish").symlink_to(EXAMPLES / "cron" / "publish")
        line = (EXAMPLES / "cron" / "crontab").read_text().splitlines()[-1]
        self.command = line.split(maxsplit=5)[5].replace("/srv/jobs", str(directory))

    def set(self, **settings):
        with self.settings.open("a") as out:
            out.writelines(f"{name}={value}\n" for name, value in settings.items())

    def run(self, **options):
        return run("/bin/sh", "-c", self.command, **options)

    def start(self):
        pipe = subprocess.PIPE
        words = ["/bin/sh", "-c", f"exec {self.command}"]
        options = {"stdin": pipe, "stdout": pipe, "text": True, "start_new_session": True}
        return subprocess.Popen(words, env={"PATH": PATH}, **options)

    def wait_for(self, words):
        end = time.monotonic() + 60
        while not (self.log.exists() and words in self.log.read_text()):
            assert time.monotonic() < end, f"no '{words}' in the log"
            time.sleep(0.02)


@pytest.fixture
def job(tmp_path, store):
    return Job(tmp_path, store)


def test_a_successful_push_is_logged_and_sends_no_mail(job, store):
    done = job.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert serving(store) == [2]
    assert "people version 2 serves: 1,000 rows" in job.log.read_text()
    assert job.log.read_text().endswith("done\n")


def test_a_held_version_is_mailed_with_the_gates_findings(job, store):
    write_people(job.source, 900)
    done = job.run()
    assert done.returncode == 3 and done.stderr == ""
    # The limit of the settings holds the version. The default gate would pass it.
    assert "HELD rows>-5%: rows 1000 to 900 (-10%)" in done.stdout
    assert "forebay swap people 2" in done.stdout and str(store) in done.stdout
    assert serving(store) == [1]
    # An operator agrees to the swap.
    assert ask(store, "swap", "people", "2") == {"table": "people", "version": 2, "previous": 1}


def test_damaged_input_is_mailed_and_changes_nothing(job, store):
    job.source.write_bytes(job.source.read_bytes()[:-100])
    done = job.run()
    assert done.returncode == 1
    assert "people.parquet: its footer is damaged or cut off" in done.stdout
    assert serving(store) == [1] and len(ask(store, "versions", "people")) == 1


def test_a_missing_store_and_wrong_settings_are_mailed(job, tmp_path):
    job.set(store=tmp_path / "elsewhere")
    done = job.run()
    assert done.returncode == 1 and "there is no forebay store" in done.stdout
    assert not (tmp_path / "elsewhere").exists()
    job.set(options="(--gate 'rows')")
    done = job.run()
    assert done.returncode == 2 and "--gate" in done.stdout
    done = run(EXAMPLES / "cron" / "publish", tmp_path / "none.conf")
    assert done.returncode == 2 and "none.conf" in done.stderr


def test_a_run_waits_for_another_push(job, store):
    job.set(busy_wait_s=0.1, busy_tries=1000)
    with Holder(store) as holder:
        running = job.start()
        job.wait_for("next try in 0.1 s")
        holder.end()
        assert running.communicate(timeout=90) == ("", None)
    assert running.returncode == 0
    assert len(serving(store)) == 1 and serving(store) != [1]


def test_a_push_that_stays_busy_is_mailed(job, store):
    job.set(busy_wait_s=0.1, busy_tries=2)
    with Holder(store):
        done = job.run()
    assert done.returncode == 4 and "at each of 2 tries" in done.stdout
    assert "another push" in done.stdout
    assert serving(store) == [1]


def test_a_run_during_the_previous_one_does_nothing(job, store):
    job.set(busy_wait_s=60)
    with Holder(store):
        running = job.start()
        try:
            job.wait_for("next try")
            done = job.run()
        finally:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
    assert done.returncode == 4 and "the run before is still at work" in done.stdout


def test_a_push_that_takes_too_long_is_stopped(job, store):
    job.set(sources="(- --format csv)", time_limit="1s")
    # The input never gives rows.
    reading = subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE)
    try:
        done = job.run(stdin=reading.stdout)
    finally:
        reading.kill()
        reading.communicate()
    assert done.returncode == 124 and "stopped after 1s" in done.stdout
    assert serving(store) == [1]
