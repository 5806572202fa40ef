//! Copies that other nodes bring from here, part by part.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::RunId;
use forebay_engine::live::PartitionCopy;
use forebay_host::PartitionState;
use forebay_io::{Clock, Disk, Random, ReadFile};
use forebay_replica::GroupId;
use parking_lot::Mutex;

use super::copy_wire::{CopyOffer, MOST_PART_BYTES, OfferedFile, summed};
use crate::wire::to_bytes;

/// A copy of which nobody reads for so long goes.
const UNREAD: Duration = Duration::from_secs(60);
/// The most copies that are held for others at once: the files of each stay.
const MOST_COPIES: usize = 64;

type OpenFile = Arc<dyn ReadFile>;

/// See the module's text.
#[derive(Debug)]
pub struct CopyShelf {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    copies: Mutex<BTreeMap<u64, ShelvedCopy>>,
}

#[derive(Debug)]
struct ShelvedCopy {
    group: GroupId,
    files: Vec<OpenFile>,
    read_at: Duration,
    /// The files stay for as long as this.
    _copy: PartitionCopy,
}

impl CopyShelf {
    pub fn new(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self {
            disk,
            clock,
            random,
            copies: Mutex::default(),
        }
    }

    /// Makes a copy, at this entry or a later one, and says what it consists of.
    pub fn begin(
        &self,
        group: GroupId,
        state: &PartitionState,
        at_least: u64,
    ) -> io::Result<Bytes> {
        if self.copies.lock().len() >= MOST_COPIES {
            return Err(io::Error::other("too many copies are brought from here"));
        }
        let copy = state.copy().map_err(io::Error::other)?;
        let applied = copy.content().applied.as_ref();
        let index = applied.map_or(0, |applied| applied.index);
        if index < at_least {
            let text = format!("it is at entry {index} here, and {at_least} is asked for");
            return Err(io::Error::other(text));
        }
        let (offered, files) = self.files_of(&copy)?.into_iter().unzip();
        let id = self.random.next_u64();
        let offer = to_bytes(&CopyOffer::new(id, copy.content(), offered))?;
        let shelved = ShelvedCopy {
            group,
            files,
            read_at: self.clock.monotonic(),
            _copy: copy,
        };
        self.copies.lock().insert(id, shelved);
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
                let file = self.disk.open(&path)?;
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

    pub fn read(&self, copy: u64, file: usize, offset: u64, bytes: u64) -> io::Result<Bytes> {
        let wrong = |problem: &str| io::Error::new(io::ErrorKind::InvalidInput, problem.to_owned());
        let file = {
            let mut copies = self.copies.lock();
            let copy = copies.get_mut(&copy);
            let copy = copy.ok_or_else(|| io::Error::other("there is no such copy any more"))?;
            copy.read_at = self.clock.monotonic();
            let file = copy.files.get(file);
            Arc::clone(file.ok_or_else(|| wrong("the copy has no such file"))?)
        };
        let end = offset.checked_add(bytes);
        if bytes > MOST_PART_BYTES || end.is_none_or(|end| end > file.len_bytes()) {
            return Err(wrong("the copy's file has no such part"));
        }
        let mut part = vec![0; bytes as usize];
        file.read_exact_at(&mut part, offset)?;
        Ok(summed(&part))
    }

    pub fn end(&self, copy: u64) {
        let ended = self.copies.lock().remove(&copy);
        // Without the lock: files may go with it.
        drop(ended);
    }

    pub fn remove_of(&self, group: GroupId) {
        self.remove_where(|copy| copy.group == group);
    }

    /// Gives up those that nobody reads.
    pub fn tidy(&self) {
        let now = self.clock.monotonic();
        self.remove_where(|copy| now.saturating_sub(copy.read_at) >= UNREAD);
    }

    fn remove_where(&self, is_past: impl Fn(&ShelvedCopy) -> bool) {
        let mut copies = self.copies.lock();
        let all = std::mem::take(&mut *copies).into_iter();
        let (past, kept): (BTreeMap<_, _>, _) = all.partition(|(_, copy)| is_past(copy));
        *copies = kept;
        drop(copies);
        drop(past);
    }
}
