"""Packets to measure with: a real capture (test data of the Go module gopacket) again and again, each time later. It
comes as one capture and as a table of what its packets say."""

import json
import shutil
import struct
from pathlib import Path

from common import DATA, run, say

MODULE, FILE = "github.com/gopacket/gopacket@v1.7.7", "layers/testdata/cip.pcap"
HEADER_BYTES, RECORD_HEADER_BYTES = 24, 16
#: Between the last packet of one repetition and the first of the next.
PAUSE_US = 1000
#: Rows of a group of a Parquet file: the least that a task can be given.
GROUP_ROWS = 25_000
SIGN = 1 << 63
#: The key of a table of packets.
TABLE_KEY = "{time_us:016}/{packet:010}"


def capture_key(time_ns: int, packet: int) -> bytes:
    """As the template {time:be}{packet:be} has it, of a signed and an unsigned number."""
    return struct.pack(">QQ", time_ns ^ SIGN, packet)


def table_key(time_us: int, packet: int) -> str:
    """As the template of TABLE_KEY has it."""
    return f"{time_us:016}/{packet:010}"


def original() -> Path:
    """The real capture, brought the first time."""
    path = DATA / "packets-original.pcap"
    if not path.exists():
        say("bringing the capture to repeat")
        found = json.loads(run(["go", "mod", "download", "-json", MODULE], env={"GOFLAGS": "-mod=mod"}))
        shutil.copyfile(Path(found["Dir"]) / FILE, path)
    return path


class Repeated:
    """The capture, repeated without end. Packets are counted from 1, as in a capture."""

    def __init__(self):
        self.bytes = original().read_bytes()
        self.offsets, self.times_us = [], []
        at = HEADER_BYTES
        while at < len(self.bytes):
            seconds, micros, captured, _ = struct.unpack_from("<4I", self.bytes, at)
            self.offsets.append(at)
            self.times_us.append(seconds * 1_000_000 + micros)
            at += RECORD_HEADER_BYTES + captured
        self.period_us = max(self.times_us) - min(self.times_us) + PAUSE_US

    def __len__(self) -> int:
        return len(self.offsets)

    def time_us(self, packet: int) -> int:
        repetition, place = divmod(packet - 1, len(self))
        return self.times_us[place] + repetition * self.period_us

    def lengths(self, packet: int) -> tuple[int, int]:
        """Bytes captured, bytes on the wire."""
        return struct.unpack_from("<2I", self.bytes, self.offsets[(packet - 1) % len(self)] + 8)

    def summary(self, packet: int) -> str:
        """Protocol, both ends and lengths, as text; all packets here are IPv4's without options."""
        start = self.offsets[(packet - 1) % len(self)] + RECORD_HEADER_BYTES
        ip = self.bytes[start + 14 : start + 40]
        source, destination = (".".join(str(byte) for byte in ip[at : at + 4]) for at in (12, 16))
        ports = struct.unpack_from(">2H", ip, 4 * (ip[0] & 15))
        return f"{ip[9]} {source} {ports[0]} {destination} {ports[1]} {' '.join(map(str, self.lengths(packet)))}"


def capture(packets: Repeated, repetitions: int) -> Path:
    """A pcap file of so many repetitions."""
    import numpy

    path = DATA / f"packets-{repetitions}.pcap"
    if path.exists():
        return path
    say(f"writing a capture of {repetitions * len(packets):,} packets")
    body = numpy.frombuffer(packets.bytes, numpy.uint8)[HEADER_BYTES:].copy()
    stamps = numpy.array(packets.offsets) - HEADER_BYTES
    places = stamps[:, None] + numpy.arange(8)
    times = numpy.array(packets.times_us)
    new = path.with_suffix(".new")
    with new.open("wb") as out:
        out.write(packets.bytes[:HEADER_BYTES])
        for repetition in range(repetitions):
            seconds, micros = numpy.divmod(times + repetition * packets.period_us, 1_000_000)
            body[places] = numpy.stack([seconds, micros], axis=1).astype("<u4").view(numpy.uint8)
            out.write(body)
    new.replace(path)
    return path


def table(packets: Repeated, rows: int) -> Path:
    """A Parquet file of the first packets: `time_us`, `packet` and `value`, a text of about 50 characters."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    path = DATA / f"packets-{rows}.parquet"
    if path.exists():
        return path
    say(f"writing a table of {rows:,} packets")
    repetitions = -(-rows // len(packets))
    times = numpy.array(packets.times_us) + numpy.arange(repetitions)[:, None] * packets.period_us
    values = pyarrow.array([packets.summary(packet) for packet in range(1, len(packets) + 1)])
    made = pyarrow.table({
        "time_us": times.ravel()[:rows],
        "packet": numpy.arange(1, rows + 1),
        "value": pyarrow.chunked_array([values] * repetitions).slice(0, rows),
    })
    new = path.with_suffix(".new")
    pyarrow.parquet.write_table(made, new, row_group_size=GROUP_ROWS)
    new.replace(path)
    return path
