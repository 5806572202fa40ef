//! Records of a log of replicas: their content and their encoding.
//!
//! ```text
//! frame   = record...                         one group after the other, each group once
//! entries = 1 group term_before first_index count (term length bytes)...
//! promise = 2 group length bytes
//! begins  = 3 group term index
//! gone    = 4 group
//! ```
//!
//! The kind is a byte. Every number is a LEB128.

use std::fmt;

use thiserror::Error;

const ENTRIES: u8 = 1;
const PROMISE: u8 = 2;
const BEGINS: u8 = 3;
const GONE: u8 = 4;

/// A place in a group's log. Places compare as logs do: by term first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct EntryPlace {
    pub term: u64,
    pub index: u64,
}

impl fmt::Display for EntryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of term {}", self.index, self.term)
    }
}

/// An entry that is to be logged.
#[derive(Debug, Clone, Copy)]
pub struct EntryDraft<'a> {
    pub place: EntryPlace,
    pub bytes: &'a [u8],
}

/// An entry as it was logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedEntry {
    pub place: EntryPlace,
    pub bytes: Vec<u8>,
}

/// The records of one group that are to be logged, in the order of these fields.
#[derive(Debug, Clone, Default)]
pub struct GroupRecords<'a> {
    pub group: u64,
    /// All earlier records of the group are void.
    pub is_gone: bool,
    /// The group's log begins again after this place: it was founded, or a copy replaced it. The
    /// promise stays.
    pub begins: Option<EntryPlace>,
    /// Consecutive. The first replaces the group's entry at its index and all later ones.
    pub entries: Vec<EntryDraft<'a>>,
    /// Replaces the earlier promise.
    pub promise: Option<&'a [u8]>,
}

/// The content of a record, entry by entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupRecord<'a> {
    Entry {
        group: u64,
        /// The term of the entry before it.
        term_before: u64,
        place: EntryPlace,
        bytes: &'a [u8],
    },
    Promise {
        group: u64,
        bytes: &'a [u8],
    },
    Begins {
        group: u64,
        behind: EntryPlace,
    },
    Gone {
        group: u64,
    },
}

/// The reason why a frame's bytes are not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum RecordProblem {
    #[error("a record is cut short")]
    Cut,
    #[error("a number has more than 64 bits")]
    Number,
    #[error("{0} is no kind of record")]
    Kind(u8),
    #[error("a record has no entries")]
    NoEntries,
    #[error("entries have indexes from {first} on, {count} of them")]
    Indexes { first: u64, count: u64 },
    #[error("the term falls from {before} to {found}")]
    Term { before: u64, found: u64 },
}

impl GroupRecord<'_> {
    pub fn group(&self) -> u64 {
        match self {
            GroupRecord::Entry { group, .. }
            | GroupRecord::Promise { group, .. }
            | GroupRecord::Begins { group, .. }
            | GroupRecord::Gone { group } => *group,
        }
    }
}

/// Appends the records. `term_before` is the term of the entry before the first one.
pub(super) fn push_records(out: &mut Vec<u8>, records: &GroupRecords<'_>, term_before: u64) {
    let group = records.group;
    if records.is_gone {
        out.push(GONE);
        push_number(out, group);
    }
    if let Some(behind) = records.begins {
        out.push(BEGINS);
        push_number(out, group);
        push_number(out, behind.term);
        push_number(out, behind.index);
    }
    if let Some(first) = records.entries.first() {
        out.push(ENTRIES);
        push_number(out, group);
        push_number(out, term_before);
        push_number(out, first.place.index);
        push_number(out, records.entries.len() as u64);
        for entry in &records.entries {
            push_number(out, entry.place.term);
            push_bytes(out, entry.bytes);
        }
    }
    if let Some(promise) = records.promise {
        out.push(PROMISE);
        push_number(out, group);
        push_bytes(out, promise);
    }
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// An iterator over the records of a frame. It ends at the first problem.
#[derive(Debug)]
pub(super) struct RecordReader<'a> {
    rest: &'a [u8],
    /// The remaining entries of a record: its group, the place of the last one that was read, and
    /// the number that follow.
    entries: Option<(u64, EntryPlace, u64)>,
}

impl<'a> RecordReader<'a> {
    pub fn new(payload: &'a [u8]) -> Self {
        Self {
            rest: payload,
            entries: None,
        }
    }

    fn read(&mut self) -> Result<GroupRecord<'a>, RecordProblem> {
        if let Some((group, before, left)) = self.entries.take() {
            return self.entry(group, before, left);
        }
        let kind = self.byte()?;
        if !(ENTRIES..=GONE).contains(&kind) {
            return Err(RecordProblem::Kind(kind));
        }
        let group = self.number()?;
        match kind {
            ENTRIES => {
                let (term, first, count) = (self.number()?, self.number()?, self.number()?);
                if count == 0 {
                    return Err(RecordProblem::NoEntries);
                }
                if first == 0 || first.checked_add(count).is_none() {
                    return Err(RecordProblem::Indexes { first, count });
                }
                let index = first - 1;
                self.entry(group, EntryPlace { term, index }, count)
            }
            PROMISE => Ok(GroupRecord::Promise {
                group,
                bytes: self.bytes()?,
            }),
            BEGINS => {
                let (term, index) = (self.number()?, self.number()?);
                if index == u64::MAX {
                    let (first, count) = (index, 0);
                    return Err(RecordProblem::Indexes { first, count });
                }
                let behind = EntryPlace { term, index };
                Ok(GroupRecord::Begins { group, behind })
            }
            _ => Ok(GroupRecord::Gone { group }),
        }
    }

    fn entry(
        &mut self,
        group: u64,
        before: EntryPlace,
        left: u64,
    ) -> Result<GroupRecord<'a>, RecordProblem> {
        let term = self.number()?;
        if term < before.term {
            return Err(RecordProblem::Term {
                before: before.term,
                found: term,
            });
        }
        let bytes = self.bytes()?;
        let place = EntryPlace {
            term,
            index: before.index + 1,
        };
        self.entries = (left > 1).then_some((group, place, left - 1));
        Ok(GroupRecord::Entry {
            group,
            term_before: before.term,
            place,
            bytes,
        })
    }

    fn byte(&mut self) -> Result<u8, RecordProblem> {
        let (first, rest) = self.rest.split_first().ok_or(RecordProblem::Cut)?;
        self.rest = rest;
        Ok(*first)
    }

    fn bytes(&mut self) -> Result<&'a [u8], RecordProblem> {
        let length = usize::try_from(self.number()?).map_err(|_| RecordProblem::Cut)?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(RecordProblem::Cut)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64, RecordProblem> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(RecordProblem::Number);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(RecordProblem::Number)
    }
}

impl<'a> Iterator for RecordReader<'a> {
    type Item = Result<GroupRecord<'a>, RecordProblem>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() && self.entries.is_none() {
            return None;
        }
        let record = self.read();
        if record.is_err() {
            (self.rest, self.entries) = (&[], None);
        }
        Some(record)
    }
}
