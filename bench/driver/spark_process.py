"""Sessions of Spark as the drivers use them (spark_session.py does the work)."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from common import BENCH, DATA, Failed

SECONDS = 900


class Spark:
    """A session over so many workers, ended when the block ends."""

    def __init__(self, workers: int, environment: dict | None = None):
        self.scratch = DATA / "spark-scratch"
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        self.log = (DATA / "spark.log").open("w")
        environment = {**(environment or os.environ), "PYTHONPATH": str(BENCH / "driver")}
        program = Path(__file__).with_name("spark_session.py")
        # The workers' own files go to the directory they are started in.
        self.child = subprocess.Popen(
            [sys.executable, str(program), str(workers), str(self.scratch)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log, text=True, env={**environment, "SPARK_WORKER_DIR": str(self.scratch / "work")}, cwd=self.scratch,
        )
        try:
            self.answer()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        try:
            self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()
        self.log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def do(self, what: str, **words) -> dict:
        line = json.dumps({"do": what, **{name: str(word) if isinstance(word, Path) else word for name, word in words.items()}})
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
        except BrokenPipeError as error:
            raise Failed(f"Spark ended; see {self.log.name}") from error
        return self.answer()

    def answer(self) -> dict:
        late = threading.Timer(SECONDS, self.child.kill)
        late.start()
        try:
            for line in self.child.stdout:
                if line.startswith("@"):
                    result = json.loads(line[1:])
                    break
            else:
                raise Failed(f"Spark ended; see {self.log.name}")
        finally:
            late.cancel()
        if "error" in result:
            raise Failed(f"Spark: {result['error']}")
        return result
