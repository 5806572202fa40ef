//! A simulated file's bytes: what readers see, what is durable, and what a power cut may leave.
//!
//! A random generator chooses which changes since the last sync a power cut leaves. It may leave
//! none, or all, or those up to some moment, the last one perhaps in part. It may leave the file's
//! length with zeros for content. Or it chooses for each sector separately, because devices write
//! sectors in any order: the changes up to some moment, and perhaps a part of the next one, because
//! memory may be written while the device reads it. (No such part ends in the last bytes of a
//! sector: a log could not distinguish that from damage, `docs/reference/log-format.md`.)

use std::collections::BTreeMap;
use std::ops::Range;

use super::Rng;

/// The unit that a device writes completely or not at all.
const SECTOR_BYTES: usize = 512;
/// The unit in which a file takes the disk's space.
const BLOCK_BYTES: usize = 4096;
/// The latest position in a sector at which a part of a write ends.
const LAST_TEAR: usize = SECTOR_BYTES - 16;

#[derive(Debug, Default, Clone)]
pub(super) struct Inode {
    /// The content that readers see now.
    content: Vec<u8>,
    /// The content of the last sync, without `since`.
    durable: Vec<u8>,
    /// The changes that `durable` does not have, oldest first.
    since: Vec<Change>,
    /// The disk space of the file.
    allocated_bytes: usize,
}

#[derive(Debug, Clone)]
struct Change {
    what: ChangeKind,
    fate: Fate,
}

#[derive(Debug, Clone)]
enum ChangeKind {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It was not synced yet.
    Unsynced,
    /// A sync of it failed: it is durable or not, and no later sync changes that.
    Lost,
    /// Durable, on top of a change that may not be.
    Durable,
}

impl Inode {
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Returns whether a write would need more of the disk's space.
    pub fn outgrows(&self, end: usize) -> bool {
        end > self.allocated_bytes
    }

    pub fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = (offset + bytes.len()).next_multiple_of(BLOCK_BYTES);
        self.allocated_bytes = self.allocated_bytes.max(end);
        self.write_part(bytes, offset);
    }

    /// Does the part of a write that fails.
    pub fn write_part(&mut self, bytes: &[u8], offset: usize) {
        let bytes = bytes.to_vec();
        self.change(ChangeKind::Write { offset, bytes });
    }

    pub fn set_len(&mut self, len_bytes: usize) {
        let blocks = len_bytes.next_multiple_of(BLOCK_BYTES);
        self.allocated_bytes = self.allocated_bytes.min(blocks);
        self.change(ChangeKind::SetLen(len_bytes));
    }

    fn change(&mut self, what: ChangeKind) {
        what.apply(&mut self.content, &|_| SECTOR_BYTES);
        let fate = Fate::Unsynced;
        self.since.push(Change { what, fate });
    }

    pub fn synced(&mut self) {
        if self.since.iter().all(|change| change.fate != Fate::Lost) {
            for change in self.since.drain(..) {
                change.what.apply(&mut self.durable, &|_| SECTOR_BYTES);
            }
        }
        self.settle(Fate::Durable);
    }

    pub fn sync_failed(&mut self) {
        self.settle(Fate::Lost);
    }

    fn settle(&mut self, fate: Fate) {
        for change in &mut self.since {
            if change.fate == Fate::Unsynced {
                change.fate = fate;
            }
        }
    }

    /// Changes the content without a write: the change is durable at once.
    pub fn tamper(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.content);
        self.durable.clone_from(&self.content);
        self.since.clear();
    }

    pub fn after_power_cut(&self, rng: &mut Rng) -> Inode {
        let content = self.survivor(rng);
        Inode {
            allocated_bytes: content.len().next_multiple_of(BLOCK_BYTES),
            durable: content.clone(),
            content,
            since: Vec::new(),
        }
    }

    fn survivor(&self, rng: &mut Rng) -> Vec<u8> {
        let all = self.since.len();
        let moment = rng.below(all as u64 + 1) as usize;
        match rng.below(5) {
            0 => self.keep(0),
            1 => self.keep(all),
            2 => {
                let mut kept = self.keep(moment);
                if let Some(Change { what, fate }) = self.since.get(moment)
                    && *fate != Fate::Durable
                {
                    what.tear(&mut kept, rng);
                }
                kept
            }
            3 => {
                let length = self.keep(all).len();
                let mut kept = self.keep(0);
                kept.resize(length.max(kept.len()), 0);
                kept
            }
            _ => {
                let salt = rng.next_u64();
                let sectors = self.moments_by_sector(salt);
                let mut kept = self.keep_of(|at, sector| match sectors.get(&sector) {
                    Some(moment) => moment.kept_of(at),
                    None => SECTOR_BYTES,
                });
                if rng.below(2) == 0 {
                    kept.truncate(self.keep(moment).len());
                }
                kept
            }
        }
    }

    /// Returns for each changed sector how many of the changes it has.
    fn moments_by_sector(&self, salt: u64) -> BTreeMap<usize, Moment> {
        let mut moments: BTreeMap<usize, Moment> = BTreeMap::new();
        for (at, change) in self.since.iter().enumerate() {
            for sector in change.what.sectors() {
                let mut rng = Rng(salt ^ ((sector as u64) << 32 | at as u64));
                let moment = moments.entry(sector).or_default();
                // The last of these draws to succeed counts; often none does.
                if rng.below(3) == 0 {
                    *moment = Moment {
                        changes: at + 1,
                        torn: None,
                    };
                } else if moment.torn.is_none() {
                    let bytes = match rng.below(3) {
                        0 => rng.below(SECTOR_BYTES as u64) as usize,
                        _ => 0,
                    };
                    moment.torn = Some((at, bytes));
                }
            }
        }
        moments
    }

    /// Returns the content if all sectors keep the changes before a moment, and what is durable
    /// anyway.
    fn keep(&self, moment: usize) -> Vec<u8> {
        self.keep_of(|at, _| if at < moment { SECTOR_BYTES } else { 0 })
    }

    /// Returns the content if each sector keeps this many bytes of each change.
    fn keep_of(&self, bytes: impl Fn(usize, usize) -> usize) -> Vec<u8> {
        let mut content = self.durable.clone();
        for (at, change) in self.since.iter().enumerate() {
            let kept = |sector: usize| match change.fate {
                Fate::Durable => SECTOR_BYTES,
                Fate::Unsynced | Fate::Lost => bytes(at, sector),
            };
            change.what.apply(&mut content, &kept);
        }
        content
    }
}

/// The changes that a sector has.
#[derive(Debug, Default)]
struct Moment {
    /// It has all of this many of the file's changes.
    changes: usize,
    /// It has this many bytes of the next change that touches it.
    torn: Option<(usize, usize)>,
}

impl Moment {
    fn kept_of(&self, change: usize) -> usize {
        match self.torn {
            _ if change < self.changes => SECTOR_BYTES,
            Some((torn, bytes)) if torn == change => bytes,
            _ => 0,
        }
    }
}

impl ChangeKind {
    /// Applies the change to the sectors that keep some of it, with the kept bytes of each.
    fn apply(&self, content: &mut Vec<u8>, kept: &dyn Fn(usize) -> usize) {
        match self {
            ChangeKind::SetLen(len_bytes) => {
                if kept(len_bytes / SECTOR_BYTES) == SECTOR_BYTES {
                    content.resize(*len_bytes, 0);
                }
            }
            ChangeKind::Write { offset, bytes } => {
                for mut part in parts(*offset..offset + bytes.len()) {
                    let kept = kept(part.start / SECTOR_BYTES);
                    if kept < SECTOR_BYTES {
                        let tear = part.start / SECTOR_BYTES * SECTOR_BYTES + LAST_TEAR;
                        part.end = part.end.min(part.start + kept).min(tear);
                    }
                    if !part.is_empty() {
                        let end = part.end.max(content.len());
                        content.resize(end, 0);
                        let from = &bytes[part.start - offset..part.end - offset];
                        content[part].copy_from_slice(from);
                    }
                }
            }
        }
    }

    /// Applies a part of the change.
    fn tear(&self, content: &mut Vec<u8>, rng: &mut Rng) {
        if let ChangeKind::Write { offset, bytes } = self {
            let kept = rng.below(bytes.len() as u64 + 1) as usize;
            let part = ChangeKind::Write {
                offset: *offset,
                bytes: bytes[..kept].to_vec(),
            };
            part.apply(content, &|_| SECTOR_BYTES);
        }
    }

    fn sectors(&self) -> Range<usize> {
        match self {
            ChangeKind::SetLen(len_bytes) => len_bytes / SECTOR_BYTES..len_bytes / SECTOR_BYTES + 1,
            ChangeKind::Write { offset, bytes } => {
                offset / SECTOR_BYTES..(offset + bytes.len()).div_ceil(SECTOR_BYTES)
            }
        }
    }
}

/// Splits a range at sector bounds.
fn parts(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(range.end);
        let part = at..end;
        at = end;
        (!part.is_empty()).then_some(part)
    })
}
