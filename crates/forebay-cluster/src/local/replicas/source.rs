//! Serves copies of local partitions to other nodes, part by part.
//!
//! It slows down if serving suffers.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::RunId;
use forebay_engine::live::PartitionCopy;
use forebay_host::PartitionState;
use forebay_io::{Clock, Disk, Random, ReadFile, give_way};
use forebay_objects::{PullActive, PullThrottle};
use forebay_replica::GroupId;
use parking_lot::Mutex;

use super::copy_wire::{CopyOffer, MOST_PART_BYTES, OfferedFile, summed};
use crate::wire::to_bytes;

/// The time without reads after which a copy ends.
const UNREAD: Duration = Duration::from_secs(60);
/// The maximum number of copies at once: each keeps its files on the disk.
const MOST_COPIES: usize = 64;

type OpenFile = Arc<dyn ReadFile>;

/// The copies that other nodes are fetching from this node.
#[derive(Debug)]
pub struct CopySource {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    throttle: Arc<PullThrottle>,
    copies: Mutex<BTreeMap<u64, SourceCopy>>,
}

#[derive(Debug)]
struct SourceCopy {
    group: GroupId,
    /// Each file with the index of its run.
    files: Vec<(usize, OpenFile)>,
    read_at: Duration,
    /// Keeps the files on the disk.
    copy: Arc<PartitionCopy>,
    _under_way: PullActive,
}

impl CopySource {
    pub fn new(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        throttle: Arc<PullThrottle>,
    ) -> Self {
        Self {
            disk,
            clock,
            random,
            throttle,
            copies: Mutex::default(),
        }
    }

    /// Makes a copy, at this entry or a later one, and returns its contents.
    pub fn begin(
        &self,
        group: GroupId,
        state: &PartitionState,
        at_least: u64,
    ) -> io::Result<Bytes> {
        if self.copies.lock().len() >= MOST_COPIES {
            return Err(io::Error::other(
                "too many copies are being fetched from this node",
            ));
        }
        let copy = state.copy().map_err(io::Error::other)?;
        let applied = copy.content().applied.as_ref();
        let index = applied.map_or(0, |applied| applied.index);
        if index < at_least {
            let text = format!("it is at entry {index} here, and {at_least} is asked for");
            return Err(io::Error::other(text));
        }
        let files = self.files_of(&copy)?;
        let offered = files.iter().map(|(offered, _)| *offered).collect();
        let files = files.into_iter().map(|(offered, file)| (offered.run, file));
        let id = self.random.next_u64();
        let offer = to_bytes(&CopyOffer::new(id, copy.content(), offered))?;
        let prepared = SourceCopy {
            group,
            files: files.collect(),
            read_at: self.clock.monotonic(),
            copy: Arc::new(copy),
            _under_way: self.throttle.begin(),
        };
        let other = self.copies.lock().insert(id, prepared);
        debug_assert!(other.is_none(), "two copies have the number {id}");
        Ok(offer)
    }

    fn files_of(&self, copy: &PartitionCopy) -> io::Result<Vec<(OfferedFile, OpenFile)>> {
        let mut files = Vec::new();
        let ids: Vec<&RunId> = copy.content().runs.iter().map(|run| &run.id).collect();
        for (run, id) in ids.into_iter().enumerate() {
            let long_values = copy.long_values_file(id);
            let has_long_values = self.disk.exists(&long_values)?;
            let long_values = has_long_values.then_some((long_values, true));
            for (path, is_of_long_values) in [Some((copy.run_file(id), false)), long_values]
                .into_iter()
                .flatten()
            {
                // A file that is missing or cannot be read is damage as well.
                let file = self.disk.open(&path);
                let file = file.inspect_err(|_| drop(copy.check_run(id)))?;
                let offered = OfferedFile {
                    run,
                    is_of_long_values,
                    len_bytes: file.len_bytes(),
                };
                files.push((offered, file));
            }
        }
        Ok(files)
    }

    /// Reads a part of a file. Waits if serving suffers.
    pub fn read(&self, copy: u64, file: usize, offset: u64, bytes: u64) -> io::Result<Bytes> {
        let wrong = |problem: &str| io::Error::new(io::ErrorKind::InvalidInput, problem.to_owned());
        let (whole, run, file) = {
            let mut copies = self.copies.lock();
            let copy = copies.get_mut(&copy).ok_or_else(no_copy)?;
            copy.read_at = self.clock.monotonic();
            let file = copy.files.get(file);
            let (run, file) = file.ok_or_else(|| wrong("the copy has no such file"))?;
            (Arc::clone(&copy.copy), *run, Arc::clone(file))
        };
        let end = offset.checked_add(bytes);
        if bytes > MOST_PART_BYTES || end.is_none_or(|end| end > file.len_bytes()) {
            return Err(wrong("the copy's file has no such part"));
        }
        let mut part = vec![0; bytes as usize];
        if let Err(error) = file.read_exact_at(&mut part, offset) {
            check(&whole, run)?;
            return Err(error);
        }
        self.throttle.take_here(bytes);
        let part = summed(&part);
        give_way();
        Ok(part)
    }

    /// Reads a run of a copy back, because the node that fetched it could not read it.
    pub fn check(&self, copy: u64, run: usize) -> io::Result<()> {
        let whole = {
            let copies = self.copies.lock();
            let copy = copies.get(&copy).ok_or_else(no_copy)?;
            Arc::clone(&copy.copy)
        };
        check(&whole, run)
    }

    pub fn end(&self, copy: u64) {
        let ended = self.copies.lock().remove(&copy);
        // Drop it without the lock: this may delete files.
        drop(ended);
    }

    pub fn remove_of(&self, group: GroupId) {
        self.remove_where(|copy| copy.group == group);
    }

    /// Ends copies that were not read for too long.
    pub fn tidy(&self) {
        let now = self.clock.monotonic();
        self.remove_where(|copy| now.saturating_sub(copy.read_at) >= UNREAD);
    }

    fn remove_where(&self, is_past: impl Fn(&SourceCopy) -> bool) {
        let mut copies = self.copies.lock();
        let all = std::mem::take(&mut *copies).into_iter();
        let (past, kept): (BTreeMap<_, _>, _) = all.partition(|(_, copy)| is_past(copy));
        *copies = kept;
        drop(copies);
        drop(past);
    }
}

fn no_copy() -> io::Error {
    io::Error::other("there is no such copy any more")
}

fn check(copy: &PartitionCopy, run: usize) -> io::Result<()> {
    let run = copy.content().runs.get(run);
    run.map_or(Ok(()), |run| copy.check_run(&run.id))
        .map_err(io::Error::other)
}
