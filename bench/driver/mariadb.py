"""A private MariaDB server and its LOAD DATA: the paper's own comparison."""

import shutil
import time
from pathlib import Path

from common import Failed, Process, memory_of, run

# As the paper tuned MySQL (256 MB for bulk inserts and for MyISAM's sort), and generous to InnoDB: a
# large buffer pool and log, no flush at each commit, no double write. No binary log.
SETTINGS = [
    "--no-defaults", "--skip-networking", "--skip-log-bin", "--user=root", "--secure-file-priv=",
    "--bulk-insert-buffer-size=256M", "--myisam-sort-buffer-size=256M", "--key-buffer-size=512M",
    "--innodb-buffer-pool-size=3G", "--innodb-log-file-size=2G", "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0", "--innodb-flush-method=O_DIRECT", "--max-allowed-packet=64M",
]


class MariaDb:
    """Runs on a data folder and a socket of its own, gone when the block ends."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.socket = folder / "s"

    def __enter__(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        data = self.folder / "data"
        run([
            "mariadb-install-db", "--no-defaults", "--user=root", "--skip-test-db",
            "--auth-root-authentication-method=normal", f"--datadir={data}",
        ])
        self.server = Process(
            ["mariadbd", *SETTINGS, f"--datadir={data}", f"--socket={self.socket}",
             f"--tmpdir={self.folder}", f"--pid-file={self.folder}/pid"],
            self.folder.parent / "mariadb.log",
        )
        try:
            self.server.wait_until(lambda: self.sql("SELECT 1") is not None, 60, "mariadbd")
        except Failed:
            self.server.stop()
            raise
        return self

    def __exit__(self, *_):
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def sql(self, text: str, seconds: float = 300) -> str:
        return run(
            ["mariadb", "--no-defaults", f"--socket={self.socket}", "-uroot", "-N", "-e", text], seconds
        ).strip()

    def load(self, file: Path, engine: str, records: int) -> dict:
        """Seconds of LOAD DATA alone, into a new table with the key as its primary key."""
        self.sql(
            "CREATE DATABASE IF NOT EXISTS b; DROP TABLE IF EXISTS b.t; "
            "CREATE TABLE b.t (k CHAR(16) CHARACTER SET latin1 COLLATE latin1_bin PRIMARY KEY, "
            f"v VARBINARY(1024) NOT NULL) ENGINE={engine}"
        )
        start = time.monotonic()
        self.sql(
            "SET unique_checks=0, foreign_key_checks=0; "
            f"LOAD DATA INFILE '{file}' INTO TABLE b.t CHARACTER SET latin1 "
            r"FIELDS TERMINATED BY '\t' ESCAPED BY '' LINES TERMINATED BY '\n' (k, v)"
        )
        seconds = time.monotonic() - start
        loaded = int(self.sql("SELECT COUNT(*) FROM b.t"))
        if loaded != records:
            raise Failed(f"{engine} loaded {loaded} of {records} rows")
        files = sum(path.stat().st_size for path in (self.folder / "data" / "b").glob("t.*"))
        peak = memory_of(self.server.pid)["peak_bytes"]
        self.sql("DROP TABLE b.t")
        return {"seconds": seconds, "file_bytes": files, "peak_rss_bytes": peak}
