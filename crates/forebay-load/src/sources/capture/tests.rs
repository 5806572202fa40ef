//! Tests of captures of random packets, some of which carry captures.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::sources::blob::Storage;
use crate::sources::store::{Object, Store};

const PART: u64 = 2048;

/// A file in memory.
fn blob(content: Vec<u8>) -> Blob {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let path = object_store::path::Path::from("a.pcap");
    let size_bytes = content.len() as u64;
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    runtime
        .block_on(objects.put(&path, content.into()))
        .unwrap();
    let store = Arc::new(Store {
        objects,
        runtime: Arc::new(runtime),
        far: false,
        secret: None,
    });
    let (tag, modified) = (None, chrono::DateTime::UNIX_EPOCH);
    Blob {
        storage: Storage::Stored(Object {
            store,
            path,
            tag,
            modified,
        }),
        name: "a.pcap".into(),
        size_bytes,
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Pcap { big: bool },
    Pcapng { big: bool },
}

const KINDS: [Kind; 4] = [
    Kind::Pcap { big: false },
    Kind::Pcap { big: true },
    Kind::Pcapng { big: false },
    Kind::Pcapng { big: true },
];

fn put(out: &mut Vec<u8>, big: bool, words: &[u32]) {
    for word in words {
        out.extend(if big {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        });
    }
}

/// The beginning of a file.
fn header(kind: Kind) -> Vec<u8> {
    let mut out = Vec::new();
    match kind {
        Kind::Pcap { big } => {
            let version = if big { 2 << 16 | 4 } else { 4 << 16 | 2 };
            put(&mut out, big, &[0xa1b2_c3d4, version, 0, 0, 65535, 1]);
        }
        Kind::Pcapng { big } => {
            let version = if big { 1 << 16 } else { 1 };
            let section = [
                0x0a0d_0d0a,
                28,
                0x1a2b_3c4d,
                version,
                u32::MAX,
                u32::MAX,
                28,
            ];
            put(&mut out, big, &section);
            let link = if big { 1 << 16 } else { 1 };
            put(&mut out, big, &[1, 20, link, 0, 20]);
        }
    }
    out
}

/// A packet's record.
fn record(kind: Kind, number: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let (length, seconds) = (data.len() as u32, 1_700_000_000 + number / 10);
    match kind {
        Kind::Pcap { big } => {
            put(&mut out, big, &[seconds, number % 10, length, length + 7]);
            out.extend(data);
        }
        Kind::Pcapng { big } => {
            let units = u64::from(seconds) * 1_000_000 + u64::from(number % 10);
            let padded = length.next_multiple_of(4);
            let (high, low) = ((units >> 32) as u32, units as u32);
            put(
                &mut out,
                big,
                &[6, 32 + padded, 0, high, low, length, length + 7],
            );
            out.extend(data);
            out.resize(out.len() + (padded - length) as usize, 0);
            put(&mut out, big, &[32 + padded]);
        }
    }
    out
}

/// What a packet carries.
#[derive(Debug, Clone)]
enum Load {
    Noise(Vec<u8>),
    /// Returns this many plausible records, of this many bytes each, from an odd offset.
    Records {
        count: u32,
        bytes: usize,
        skew: usize,
    },
    /// A whole capture.
    Capture {
        count: u32,
    },
}

fn loads() -> impl Strategy<Value = Load> {
    prop_oneof![
        4 => vec(any::<u8>(), 0..200).prop_map(Load::Noise),
        2 => (13..60u32, 0..40usize, 0..5usize)
            .prop_map(|(count, bytes, skew)| Load::Records { count, bytes, skew }),
        1 => (1..40u32).prop_map(|count| Load::Capture { count }),
    ]
}

fn carried(kind: Kind, load: &Load) -> Vec<u8> {
    match load {
        Load::Noise(bytes) => bytes.clone(),
        Load::Records { count, bytes, skew } => {
            let mut out = vec![0; *skew];
            for number in 0..*count {
                out.extend(record(kind, number, &vec![7; *bytes]));
            }
            out
        }
        Load::Capture { count } => {
            let mut out = header(kind);
            for number in 0..*count {
                out.extend(record(kind, number, b"inner"));
            }
            out
        }
    }
}

/// Returns a capture, the offsets of its records and the end of the last one.
fn capture(kind: Kind, loads: &[Load]) -> (Vec<u8>, Vec<u64>) {
    let mut out = header(kind);
    let mut begins = vec![match kind {
        Kind::Pcap { .. } => 24,
        // The headers are records, too.
        Kind::Pcapng { .. } => 0,
    }];
    for (number, load) in loads.iter().enumerate() {
        begins.push(out.len() as u64);
        out.extend(record(kind, number as u32, &carried(kind, load)));
    }
    begins.push(out.len() as u64);
    (out, begins)
}

/// Returns number and length of all packets, part after part, and the rejected records.
fn read(blob: &Blob, file: &CaptureFile) -> (Vec<(u64, u32)>, Vec<String>) {
    let columns: Vec<usize> = (0..file.schema.fields().len()).collect();
    let (mut packets, mut rejects) = (Vec::new(), Vec::new());
    for part in file.parts() {
        let before = packets.len() as u64;
        assert_eq!(part.packets_before, before);
        file.read::<SourceError>(
            blob,
            part,
            &columns,
            &mut |batch, first| {
                let numbers = batch.column(1).as_primitive::<UInt64Type>();
                let lengths = batch.column(8).as_primitive::<UInt32Type>();
                assert_eq!(numbers.value(0), first + 1);
                let both = numbers.values().iter().zip(lengths.values());
                packets.extend(both.map(|(number, length)| (*number, *length)));
                Ok(())
            },
            &mut |place, reason| {
                rejects.push(format!("{place}: {reason}"));
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(packets.len() as u64 - before, part.packets);
    }
    (packets, rejects)
}

fn wanted(kind: Kind, loads: &[Load]) -> Vec<(u64, u32)> {
    let lengths = loads.iter().map(|load| carried(kind, load).len() as u32);
    (1..).zip(lengths).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Parts begin where records do, for any content of packets. Each packet is read once.
    #[test]
    fn parts_are_whole_records(loads in vec(loads(), 1..120), kind in 0..4usize) {
        let kind = KINDS[kind];
        let (content, begins) = capture(kind, &loads);
        let size = content.len() as u64;
        let blob = blob(content);
        let file = CaptureFile::describe_by(&blob, false, PART).unwrap();
        let mut at = begins[0];
        for part in file.parts() {
            prop_assert!(begins.contains(&part.range.start), "{:?}", part.range);
            prop_assert_eq!(part.range.start, at);
            at = part.range.end;
        }
        prop_assert_eq!(at, size);
        prop_assert_eq!(read(&blob, &file).0, wanted(kind, &loads));
    }

    /// A truncated file gives the packets before the cut, and an error with its place.
    #[test]
    fn torn_captures_give_their_whole_packets(
        loads in vec(loads(), 1..40), kind in 0..4usize, cut in any::<prop::sample::Index>(),
    ) {
        let kind = KINDS[kind];
        let (content, begins) = capture(kind, &loads);
        let first = header(kind).len();
        let length = first + cut.index(content.len() - first + 1);
        let whole = begins.iter().skip(2).filter(|end| **end <= length as u64).count();
        let torn = !begins.contains(&(length as u64)) && length > first;
        let blob = blob(content[..length].to_vec());
        let file = CaptureFile::describe_by(&blob, false, PART).unwrap();
        let (packets, rejects) = read(&blob, &file);
        prop_assert_eq!(packets, wanted(kind, &loads[..whole]));
        prop_assert_eq!(rejects.len(), usize::from(torn));
        if let Some(reject) = rejects.first() {
            let at = begins[1..].iter().rev().find(|at| **at <= length as u64).unwrap();
            let words = format!("byte {at}: the capture is cut off");
            prop_assert!(reject.starts_with(&words), "{} {}", reject, words);
        }
    }

    /// Changed bytes give an error or other packets, never a panic.
    #[test]
    fn damage_is_reported_or_harmless(
        loads in vec(loads(), 1..40), kind in 0..4usize, places in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (mut content, _) = capture(KINDS[kind], &loads);
        for (place, byte) in places {
            let at = place.index(content.len());
            content[at] = byte;
        }
        let blob = blob(content);
        if let Ok(file) = CaptureFile::describe_by(&blob, true, PART) {
            for part in file.parts() {
                let columns = [1, 4];
                let emit = &mut |_, _| Ok::<(), SourceError>(());
                let _ = file.read(&blob, part, &columns, emit, &mut |_, _| Ok(()));
            }
        }
    }
}

#[test]
fn a_plain_capture_is_split_into_many_parts() {
    for kind in KINDS {
        let loads = vec![Load::Noise(vec![1; 90]); 1000];
        let blob = blob(capture(kind, &loads).0);
        let file = CaptureFile::describe_by(&blob, false, PART).unwrap();
        let parts = file.parts().len() as u64;
        assert!(parts >= blob.size_bytes / PART - 1, "{kind:?}: {parts}");
        assert_eq!(read(&blob, &file).0, wanted(kind, &loads));
    }
}

#[test]
fn a_sync_point_within_a_packet_is_found_and_not_believed() {
    // Every part would begin within the packet that carries them.
    for kind in KINDS {
        let inner = Load::Records {
            count: 500,
            bytes: 36,
            skew: 0,
        };
        let plain = Load::Noise(vec![1; 60]);
        let loads = [vec![plain.clone(); 20], vec![inner], vec![plain; 20]].concat();
        let (content, begins) = capture(kind, &loads);
        let blob = blob(content);
        let start = Framing::of_file(&header(kind)).unwrap();
        let mut window = Window::new(&blob);
        let within = begins[21]
            + if matches!(kind, Kind::Pcap { .. }) {
                16
            } else {
                28
            };
        assert!(cut::is_believable(&start, &mut window, within).unwrap());
        let file = CaptureFile::describe_by(&blob, false, PART).unwrap();
        for part in file.parts() {
            assert!(
                begins.contains(&part.range.start),
                "{kind:?}: {:?}",
                part.range
            );
        }
        assert_eq!(read(&blob, &file).0, wanted(kind, &loads));
    }
}

#[test]
fn damage_in_the_middle_is_an_error_with_its_place() {
    for kind in KINDS {
        let loads = vec![Load::Noise(vec![1; 90]); 200];
        let (mut content, begins) = capture(kind, &loads);
        let at = begins[101] as usize;
        content[at + 4..at + 12].fill(0xff);
        let error = CaptureFile::describe_by(&blob(content), false, PART).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains(&format!("a.pcap: byte {at}: ")),
            "{kind:?}: {error}"
        );
    }
}

#[test]
fn files_that_are_not_captures_are_reported() {
    let refused = |content: &[u8]| {
        let blob = blob(content.to_vec());
        CaptureFile::describe(&blob, false).unwrap_err().to_string()
    };
    assert!(
        refused(b"id,name\n1,a\n").contains("it should be pcap, but its content looks like text")
    );
    let mut modified = header(Kind::Pcap { big: false });
    modified[..4].copy_from_slice(&0xa1b2_cd34_u32.to_le_bytes());
    assert!(refused(&modified).contains("editcap"));
}

/// An ethernet frame of UDP over IPv4, from 10.0.0.1:53 to 10.0.0.2:4321.
fn udp() -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(53, 4321);
    let mut out = Vec::new();
    builder.write(&mut out, b"answer").unwrap();
    out
}

#[test]
fn packets_are_decoded() {
    for kind in KINDS {
        let loads = [Load::Noise(udp()), Load::Noise(vec![0; 3])];
        let blob = blob(capture(kind, &loads).0);
        let file = CaptureFile::describe(&blob, true).unwrap();
        let mut rows = Vec::new();
        let columns: Vec<usize> = (0..file.schema.fields().len()).collect();
        file.read::<SourceError>(
            &blob,
            &file.parts()[0],
            &columns,
            &mut |batch, _| {
                rows.extend((0..batch.num_rows()).map(|row| {
                    let line = crate::sources::row_as_json(&batch, row);
                    serde_json::from_slice::<serde_json::Value>(&line).unwrap()
                }));
                Ok(())
            },
            &mut |place, reason| panic!("{place}: {reason}"),
        )
        .unwrap();
        assert_eq!(rows[0]["time"], "2023-11-14T22:13:20Z");
        assert_eq!(
            (&rows[0]["source"], &rows[0]["source_port"]),
            (&"10.0.0.1".into(), &53.into())
        );
        assert_eq!(rows[0]["destination"], "10.0.0.2");
        assert_eq!(
            (&rows[0]["protocol"], &rows[0]["destination_port"]),
            (&17.into(), &4321.into())
        );
        assert_eq!(
            (&rows[0]["captured_bytes"], &rows[0]["wire_bytes"]),
            (&48.into(), &55.into())
        );
        assert_eq!(rows[1]["source"], serde_json::Value::Null);
        assert_eq!(rows[1]["time"], "2023-11-14T22:13:20.000001Z");
        assert_eq!(rows[1]["data"], "000000");
    }
}
