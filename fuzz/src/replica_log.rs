//! Records of a log of replicas. Whatever a frame with right checksums holds, opening ends in an
//! error or in groups; what was opened can be read and written, and opens again the same.

use std::path::Path;
use std::sync::Arc;

use forebay_engine::TableName;
use forebay_engine::live::Durability;
use forebay_engine::replica_log::{
    GroupRecords, OpenedLog, ReplicaLog, ReplicaLogError, ReplicaLogOptions, SEGMENT_BYTES,
};
use forebay_io::sim::SimDisk;
use forebay_io::{Disk, SystemClock};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const DIR: &str = "/log";
const SEGMENT: &str = "/log/1.log";
const TABLE_ID: u64 = 7;
/// The most that is read of a group at once.
const READ_BYTES: u64 = 1 << 20;
/// Of a segment and a frame, as docs/reference/log-format.md has them.
const HEADER_LENGTH: usize = 12;
const HEAD_BYTES: usize = 12;
const SECTOR_BYTES: usize = 512;
/// No input has a group of this number: the log takes it.
const NEW_GROUP: u64 = u64::MAX - 7;

fn open(disk: &SimDisk) -> Result<(ReplicaLog, OpenedLog), ReplicaLogError> {
    let options = ReplicaLogOptions {
        table: TableName::new("t").expect("a name"),
        table_id: TABLE_ID,
        durability: Durability::Os,
        boot_id: 1,
        segment_bytes: SEGMENT_BYTES,
    };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    ReplicaLog::open(disk, Arc::new(SystemClock), Path::new(DIR), options)
}

fn promise_of(group: u64) -> GroupRecords<'static> {
    GroupRecords {
        group,
        promise: Some(b"promised"),
        ..GroupRecords::default()
    }
}

/// A log, and its segment without the frames.
fn empty_log() -> (SimDisk, Vec<u8>) {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).expect("an empty log");
    log.append(&[promise_of(NEW_GROUP)]).expect("appended");
    drop(log);
    let mut segment = disk.read(Path::new(SEGMENT)).expect("a segment");
    let length = segment[HEADER_LENGTH..].first_chunk().expect("a header");
    segment.truncate(u32::from_le_bytes(*length) as usize);
    (disk, segment)
}

/// Appends a frame as docs/reference/log-format.md has it.
fn push_frame(segment: &mut Vec<u8>, body: &[u8]) {
    let left = SECTOR_BYTES - segment.len() % SECTOR_BYTES;
    if left < HEAD_BYTES {
        segment.resize(segment.len() + left, 0);
    }
    let of_segment = xxh3_64(&[TABLE_ID.to_le_bytes(), 1u64.to_le_bytes()].concat());
    let seed = of_segment.wrapping_add(segment.len() as u64);
    let length = (body.len() as u32).to_le_bytes();
    let body_sum = (xxh3_64_with_seed(body, seed) as u32).to_le_bytes();
    let head = [body_sum, length].concat();
    let head_sum = (xxh3_64_with_seed(&head, seed) as u32).to_le_bytes();
    segment.extend([length, head_sum, body_sum].concat());
    segment.extend_from_slice(body);
}

/// The input: bodies of frames, each behind its length in two bytes.
fn lay_out(mut data: &[u8]) -> SimDisk {
    let (disk, mut segment) = empty_log();
    while let Some((length, rest)) = data.split_first_chunk() {
        let at = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        if at > 0 {
            push_frame(&mut segment, &rest[..at]);
        }
        data = &rest[at..];
    }
    disk.remove(Path::new(SEGMENT)).expect("removed");
    let file = disk.create_log(Path::new(SEGMENT)).expect("a file");
    file.write_all_at(&segment, 0).expect("written");
    disk
}

pub fn check(data: &[u8]) {
    let disk = lay_out(data);
    let Ok((log, opened)) = open(&disk) else {
        return;
    };
    let mut groups = opened.groups;
    for (group, logged) in &groups {
        let mut next = logged.before.index.saturating_add(1);
        while next <= logged.last.index {
            let some = log.entries(*group, next, READ_BYTES);
            let some = some.expect("what the log has is read");
            let last = some.last().expect("there is an entry").place;
            assert!(last.index >= next && last.index <= logged.last.index);
            let Some(after) = last.index.checked_add(1) else {
                break;
            };
            next = after;
        }
    }
    groups.remove(&NEW_GROUP);
    log.append(&[promise_of(NEW_GROUP)])
        .expect("it takes records");
    drop(log);
    let (_, again) = open(&disk).expect("what was opened opens again");
    let mut again = again.groups;
    let new = again.remove(&NEW_GROUP).expect("what was appended");
    assert_eq!(new.promise.as_deref(), Some(&b"promised"[..]));
    assert_eq!(again, groups);
}

/// A LEB128 number of one byte.
fn small(number: u8) -> u8 {
    assert!(number < 0x80);
    number
}

/// Bodies with all kinds of records: entries that are overwritten, promises, a group that begins
/// anew, one that is gone.
pub fn samples() -> Vec<Vec<u8>> {
    let entries = |group: u8, before: u8, first: u8, terms: &[u8]| {
        let mut body = vec![1, group, before, first, small(terms.len() as u8)];
        for term in terms {
            body.extend([*term, 3, b'a', b'b', *term]);
        }
        body
    };
    let bodies = [
        [vec![3, 5, 1, 9], entries(5, 1, 10, &[1, 1, 2])].concat(),
        [entries(6, 0, 1, &[1, 1, 1]), vec![2, 6, 2, b'p', b'q']].concat(),
        entries(5, 1, 12, &[3, 3]),
        vec![3, 8, 2, 40],
        vec![4, 6],
        entries(6, 0, 1, &[4]),
    ];
    let framed = bodies.map(|body| [&(body.len() as u16).to_le_bytes()[..], &body].concat());
    vec![framed.concat(), framed[..3].concat()]
}

#[cfg(test)]
mod tests {
    use forebay_engine::replica_log::{EntryDraft, EntryPlace};

    use super::*;

    fn place(term: u64, index: u64) -> EntryPlace {
        EntryPlace { term, index }
    }

    #[test]
    fn the_samples_are_logs() {
        let samples = samples();
        let (_, opened) = open(&lay_out(&samples[0])).expect("a log");
        let lasts: Vec<_> = opened
            .groups
            .iter()
            .map(|(id, log)| (*id, log.last))
            .collect();
        assert_eq!(
            lasts,
            [(5, place(3, 13)), (6, place(4, 1)), (8, place(2, 40))]
        );
    }

    /// The frames of the samples are those that the log itself writes.
    #[test]
    fn frames_are_as_the_log_writes_them() {
        let disk = SimDisk::new();
        let (log, _) = open(&disk).expect("an empty log");
        let entry = EntryDraft {
            place: place(1, 1),
            bytes: b"ab\x01",
        };
        let records = GroupRecords {
            group: 6,
            entries: vec![entry],
            ..GroupRecords::default()
        };
        log.append(&[records]).expect("appended");
        let segment = disk.read(Path::new(SEGMENT)).expect("a segment");
        let (_, mut framed) = empty_log();
        push_frame(&mut framed, &[1, 6, 0, 1, 1, 1, 3, b'a', b'b', 1]);
        assert_eq!(segment[..framed.len()], framed);
    }
}
