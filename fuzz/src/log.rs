//! Files of a live table's log. Whatever their bytes are, opening ends in an error or in records;
//! what was opened opens again the same, and goes on from there.

use std::path::Path;
use std::sync::Arc;

use forebay_engine::TableName;
use forebay_engine::live::log::{Durability, Log, LogError, LogOptions};
use forebay_io::sim::SimDisk;
use forebay_io::{Clock, Disk, SystemClock};

const DIR: &str = "/log";
/// The numbers of the two segments of an input, one behind the other.
const SEGMENTS: [u64; 2] = [1, 2];

fn open(disk: &SimDisk) -> Result<(Log, Vec<Vec<u8>>), LogError> {
    let mut records = Vec::new();
    let mut replay = |_: u64, record: &[u8]| {
        records.push(record.to_vec());
        Ok(())
    };
    let options = LogOptions {
        table: TableName::new("t").expect("a name"),
        table_id: 7,
        durability: Durability::Os,
    };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let log = Log::open(disk, clock, Path::new(DIR), options, 1, &mut replay)?;
    Ok((log, records))
}

fn path(segment: u64) -> std::path::PathBuf {
    Path::new(DIR).join(format!("{segment}.log"))
}

/// The input's first two bytes say how long the first segment is; the rest are the files.
fn lay_out(data: &[u8]) -> Option<SimDisk> {
    let (length, files) = data.split_first_chunk()?;
    let at = usize::from(u16::from_le_bytes(*length)).min(files.len());
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new(DIR)).expect("a directory");
    for (segment, bytes) in SEGMENTS.into_iter().zip([&files[..at], &files[at..]]) {
        if !bytes.is_empty() {
            let file = disk.create_log(&path(segment)).expect("a file");
            file.write_all_at(bytes, 0).expect("written");
        }
    }
    Some(disk)
}

pub fn check(data: &[u8]) {
    let Some(disk) = lay_out(data) else { return };
    let Ok((log, mut records)) = open(&disk) else {
        return;
    };
    log.append(b"one more").expect("it takes records");
    drop(log);
    records.push(b"one more".to_vec());
    let (_, again) = open(&disk).expect("what was opened opens again");
    assert_eq!(again, records);
}

/// A log of two segments, with marks that say how far it was durable, and one of one.
pub fn samples() -> Vec<Vec<u8>> {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).expect("an empty log");
    let read = |segment| disk.read(&path(segment)).unwrap_or_default();
    for number in 0..40u8 {
        if number == 25 {
            log.roll();
        }
        let record = vec![number; 1 + usize::from(number) * 7];
        log.append(&record).expect("appended");
        if number % 9 == 3 {
            log.sync().expect("synced");
        }
    }
    let first = read(SEGMENTS[0]);
    let length = u16::try_from(first.len()).expect("a small file");
    let both = [&length.to_le_bytes()[..], &first, &read(SEGMENTS[1])].concat();
    let one = [&length.to_le_bytes()[..], &first].concat();
    vec![both, one]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_are_logs() {
        let records = samples().into_iter().map(|sample| {
            let disk = lay_out(&sample).expect("two files");
            open(&disk).expect("a log").1.len()
        });
        assert_eq!(records.collect::<Vec<_>>(), [40, 25]);
    }
}
