"""The in-process contenders: what they are called, how they are tuned, how they are run."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import common
from common import HARNESS, JAVA_CLASSES, run_json


@dataclass(frozen=True)
class Contender:
    name: str
    label: str
    #: Also measured with huge pages asked for: it maps its files (RocksDB by its best table only).
    mapped: bool = False
    #: Where its store lies, when it shares another's.
    store_of: str = ""
    tuning: str = ""

    @property
    def store(self) -> str:
        return self.store_of or self.name


JAVA = ["java", "-Xms256m", "-Xmx1g", "-XX:+UseSerialGC", "-cp", JAVA_CLASSES, "SparkeyBench"]

CONTENDERS = [
    Contender("forebay", "Forebay", True, tuning="hashed order, pages sized by the records (4 KiB; 32 KiB for values of 1 KB), no compression, mapped"),
    Contender("cdb", "cdb", True, tuning="tinycdb, mapped"),
    Contender("sparkey", "Sparkey (Java)", tuning="no compression, one single-threaded reader a thread, JVM warmed by the check"),
    Contender("rocksdb-cuckoo", "RocksDB cuckoo table", True, tuning="hash ratio 0.9, mapped, one file"),
    Contender("rocksdb-plain", "RocksDB plain table", tuning="whole-key hash index 0.75, Bloom filter 10 bits a key, mapped, one file"),
    Contender(
        "rocksdb-block", "RocksDB block table",
        tuning="4 KiB blocks, hash index in blocks, full Bloom filter 10 bits a key, index in memory, mapped, no block cache, batched MultiGet",
    ),
    Contender("spock-interpolation", "Spock's format, interpolation", True, "spock-binary", "one chunk, both files mapped"),
    Contender("spock-binary", "Spock's format, bisection", True, tuning="one chunk, both files mapped"),
    Contender("lmdb", "LMDB", True, tuning="appended sorted, one long read transaction, no lock, no readahead"),
    Contender("redb", "redb", tuning="inserted sorted, cache larger than the file, one long read transaction"),
    Contender("hashmap", "hash map in memory", tuning="arena of all records in huge pages, 4-byte slots, XXH3: the reference, not file-backed"),
]


def chosen(only: str) -> list[Contender]:
    available = set(json.loads(common.run([HARNESS, "peers"]))["read"]) | {"sparkey"}
    return [c for c in CONTENDERS if c.name in available and only in c.name]


def store_path(contender: Contender, data: Path) -> Path:
    return data.parent / "stores" / data.name / contender.store


def build(contender: Contender, data: Path, records: int | None = None, store: Path | None = None) -> dict:
    """Builds anew; the harness's answer."""
    store = store or store_path(contender, data)
    if contender.name == "sparkey":
        shutil.rmtree(store, ignore_errors=True)
        return run_json([*JAVA, "build", data, store, records or 1 << 40], 300)
    limit = ["--records", records] if records else []
    return run_json([HARNESS, "build", "--peer", contender.name, "--data", data, "--store", store, *limit], 300)


def ensure_built(contender: Contender, data: Path) -> dict:
    """The store and what building it took; peers' stores are kept, Forebay's is always built anew."""
    store = store_path(contender, data)
    note = store.with_name(store.name + ".built.json")
    if contender.name != "forebay" and note.exists() and (store.exists() or contender.name == "hashmap"):
        return json.loads(note.read_text())
    common.say(f"  building {contender.label}")
    answer = build(contender, data)
    note.write_text(json.dumps(answer))
    return answer


def place_anew(store: Path) -> None:
    """Copies a store: where a file's pages lie in physical memory shows in its look-ups, and no place is to decide."""
    if store.exists():
        copy = store.with_name(store.name + ".copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(store, copy)
        shutil.rmtree(store)
        copy.rename(store)
        os.sync()


def read(contender: Contender, data: Path, huge: bool) -> dict:
    store = store_path(contender, data)
    place_anew(store)
    if contender.name == "sparkey":
        return run_json([*JAVA, "read", data, store], 180)
    flag = ["--huge"] if huge else []
    return run_json([HARNESS, "read", "--peer", contender.name, "--data", data, "--store", store, *flag], 180)


def cold(contender: Contender, data: Path, gets: int) -> dict:
    store = store_path(contender, data)
    return run_json([HARNESS, "cold", "--peer", contender.name, "--data", data, "--store", store, "--gets", gets], 180)


def versions() -> dict:
    return {
        "tinycdb": common.package_version("libcdb-dev"),
        "RocksDB": common.package_version("librocksdb-dev"),
        "heed (LMDB)": common.crate_version("heed"),
        "redb": common.crate_version("redb"),
        "hashbrown": common.crate_version("hashbrown"),
        "Sparkey": "3.2.5",
        "Java": common.run(["java", "--version"]).split()[1],
    }
