"""Packet captures as a source: one row per packet, with its time as the key."""

import json
import struct

SECOND = 1_000_000_000
START = 1_700_000_000


def packet(number):
    """An ethernet frame of UDP over IPv4, from 10.0.0.1 to 10.0.x.y."""
    data = b"x" * (number % 50)
    udp = struct.pack(">HHHH", 53, 1000 + number % 1000, 8 + len(data), 0) + data
    address = bytes([10, 0, number % 7, 1])
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0)
    return b"\1" * 12 + b"\x08\x00" + head + bytes([10, 0, 0, 1]) + address + udp


def pcap(path, count, cut=0):
    out = bytearray(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
    for number in range(count):
        data = packet(number)
        second, micro = START + number // 100, number % 100 * 10
        out += struct.pack("<IIII", second, micro, len(data), len(data)) + data
    path.write_bytes(out[: len(out) - cut])
    return path


def key(nanoseconds, number):
    """Times are signed, so the key flips the sign bit."""
    return struct.pack(">QQ", nanoseconds ^ 1 << 63, number)


def push(store, path, *more, code=0):
    args = ["push", "traffic", path, "--key", "{time:be}{packet:be}", "--order", "ordered"]
    return store.run(*args, *more, "--json", code=code)


def test_a_range_of_time_is_a_range_of_keys(store, tmp_path):
    # The capture is large enough that several threads read it.
    path = pcap(tmp_path / "a.pcap", 500_000)
    report = push(store, path, "--threads", "4", "--packet-data").json()
    assert (report["rows"], report["rejected"]) == (500_000, 0)
    with store.serve() as server:
        client = server.client()
        first, last = key((START + 70) * SECOND, 0), key((START + 72) * SECOND, 0)
        bounds = b"[traffic:" + first, b"(traffic:" + last
        _, items = client.execute_command("KV.RANGE", *bounds, "LIMIT", "1000")
        assert items[::2] == [
            b"traffic:" + key((START + n // 100) * SECOND + n % 100 * 10_000, n + 1)
            for n in range(7000, 7200)
        ]
        row = client.hgetall(items[0])
        assert row[b"packet"] == b"7001" and row[b"data"] == packet(7000)
        assert (row[b"source"], row[b"source_port"]) == (b"10.0.0.1", b"53")
        assert (row[b"destination"], row[b"destination_port"]) == (b"10.0.0.1", b"1000")
        assert (row[b"protocol"], row[b"wire_bytes"]) == (b"17", b"42")


def test_a_truncated_capture_gives_a_bad_row_with_its_place(store, tmp_path):
    path = pcap(tmp_path / "a.pcap", 100, cut=5)
    whole = path.stat().st_size + 5 - 16 - len(packet(99))
    message = push(store, path, code=1).err
    assert f"a.pcap: byte {whole}: the capture is cut off" in message and "--bad-rows" in message
    rejects = tmp_path / "bad.jsonl"
    report = push(store, path, "--bad-rows", rejects).json()
    assert (report["rows"], report["rejected"]) == (99, 1)
    assert json.loads(rejects.read_text())["byte"] == whole
    damaged = bytearray(path.read_bytes())
    damaged[24 + 8 : 24 + 12] = b"\xff" * 4
    path.write_bytes(damaged)
    assert "byte 24: " in push(store, path, "--bad-rows", "skip", code=1).err


def test_options_that_give_no_key_are_refused(store, tmp_path):
    path = pcap(tmp_path / "a.pcap", 5)
    message = store.refuse("push", "t", path, "--key", "{source:be}")
    assert "'source'" in message and "big-endian" in message
    packed = tmp_path / "b.pcap.gz"
    packed.write_bytes(b"")
    assert "unpack" in store.refuse("push", "t", packed, "--key", "{packet}")
