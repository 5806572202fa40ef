//! Finds places in a capture at which several threads can begin to read.
//!
//! 1. After every `part_bytes` bytes, the module looks for a *sync point*: a place from which
//!    several plausible records follow one another. That is a guess: a packet may carry anything,
//!    even a capture.
//! 2. Threads walk from each sync point to the next, by the records' lengths, and count packets.
//! 3. The first walk began at the file's first record. If it ends exactly at the second sync point,
//!    that point is the beginning of a record. By induction, so is each one at which the previous
//!    walk ends. A guess at which it does not end is dropped: the previous walk continues from its
//!    own end to the next one.
//!
//! A wrong guess therefore only costs a walk and is never used. Every part knows the number of its
//! first packet.

use std::sync::Arc;

use forebay_io::side_by_side;

use super::CapturePart;
use super::packets::Interface;
use super::walk::{Framing, WalkStep, Window};
use crate::sources::blob::Blob;
use crate::sources::error::SourceError;

/// The records that must follow one another at a sync point.
const RECORDS_TO_BELIEVE: usize = 12;
/// The distance within which a sync point is sought.
const SEARCH_BYTES: u64 = 2 << 20;
/// The number of concurrent walks.
const WALKERS: usize = 8;

/// A walk from one place to another.
#[derive(Debug)]
struct Walk {
    from: u64,
    /// The first record at or after the intended end, or the place at which the walk could not
    /// continue.
    end: u64,
    packets: u64,
    /// The offsets of sections' headers and interfaces' descriptions.
    descriptions: Vec<u64>,
    framing: Framing,
    stop: Stop,
}

#[derive(Debug, PartialEq, Eq)]
enum Stop {
    There,
    End,
    Torn,
    Bad(String),
}

/// Splits a capture into parts of about `part_bytes`.
pub fn cut(blob: &Blob, start: &Framing, part_bytes: u64) -> Result<Vec<CapturePart>, SourceError> {
    let failed = |error| blob.io_error(error);
    let syncs = sync_points(blob, start, part_bytes).map_err(failed)?;
    let walks = walk_all(blob, start, &syncs).map_err(failed)?;
    let mut proven: Vec<Walk> = Vec::new();
    for (index, walk) in walks.into_iter().enumerate() {
        let Some(last) = proven.last_mut() else {
            proven.push(walk);
            continue;
        };
        if last.stop != Stop::There {
            break;
        }
        if last.end == walk.from && last.framing == *start {
            proven.push(walk);
        } else {
            let to = syncs.get(index + 1).copied().unwrap_or(u64::MAX);
            last.go_on(blob, to).map_err(failed)?;
        }
    }
    parts(blob, start, &proven)
}

fn sync_points(blob: &Blob, start: &Framing, part_bytes: u64) -> std::io::Result<Vec<u64>> {
    let mut window = Window::new(blob);
    let mut syncs = vec![start.first_record()];
    let mut due = start.first_record() + part_bytes;
    while due < blob.size_bytes {
        let aligned = due.next_multiple_of(start.alignment());
        let until = blob.size_bytes.min(aligned + SEARCH_BYTES.min(part_bytes));
        let mut places = (aligned..until).step_by(start.alignment() as usize);
        let found = places.find_map(|at| match is_believable(start, &mut window, at) {
            Ok(true) => Some(Ok(at)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        });
        syncs.extend(found.transpose()?);
        due += part_bytes;
    }
    Ok(syncs)
}

pub fn is_believable(start: &Framing, window: &mut Window<'_>, at: u64) -> std::io::Result<bool> {
    let (mut at, mut before) = (at, None);
    for _ in 0..RECORDS_TO_BELIEVE {
        match start.step(window, at)? {
            WalkStep::End => return Ok(before.is_some()),
            WalkStep::Record(record) if start.looks_real(window, at, before)? => {
                before = Some(at);
                at += record.bytes;
            }
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Walks from each sync point to the next, in parallel.
fn walk_all(blob: &Blob, start: &Framing, syncs: &[u64]) -> std::io::Result<Vec<Walk>> {
    let mut walks = Vec::new();
    for chunk in (0..syncs.len()).collect::<Vec<_>>().chunks(WALKERS) {
        let walked = side_by_side(chunk, |&index| {
            let to = syncs.get(index + 1).copied().unwrap_or(u64::MAX);
            let mut walk = Walk::at(syncs[index], *start);
            walk.go_on(blob, to).map(|()| walk)
        });
        for walk in walked {
            walks.push(walk?);
        }
    }
    Ok(walks)
}

impl Walk {
    fn at(from: u64, framing: Framing) -> Self {
        Self {
            from,
            end: from,
            packets: 0,
            descriptions: Vec::new(),
            framing,
            stop: Stop::There,
        }
    }

    fn go_on(&mut self, blob: &Blob, to: u64) -> std::io::Result<()> {
        let mut window = Window::new(blob);
        while self.end < to {
            match self.framing.step(&mut window, self.end)? {
                WalkStep::Record(record) => {
                    if record.is_description {
                        self.descriptions.push(self.end);
                    }
                    self.packets += u64::from(record.is_packet);
                    self.framing = record.framing;
                    self.end += record.bytes;
                }
                WalkStep::End => self.stop = Stop::End,
                WalkStep::Torn => self.stop = Stop::Torn,
                WalkStep::Bad(reason) => self.stop = Stop::Bad(reason),
            }
            if self.stop != Stop::There {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the parts that walks have confirmed, with the interfaces known at the start of each.
fn parts(blob: &Blob, start: &Framing, walks: &[Walk]) -> Result<Vec<CapturePart>, SourceError> {
    let mut window = Window::new(blob);
    let (mut framing, mut packets_before) = (*start, 0);
    let mut interfaces = Vec::new();
    let mut parts = Vec::new();
    for walk in walks {
        if let Stop::Bad(reason) = &walk.stop {
            return Err(blob.damaged(format!("byte {}: the capture ", walk.end), reason));
        }
        parts.push(CapturePart {
            range: walk.from..walk.end,
            framing,
            interfaces: Arc::new(interfaces.clone()),
            packets_before,
            packets: walk.packets,
            torn: (walk.stop == Stop::Torn).then_some(walk.end),
        });
        packets_before += walk.packets;
        for &at in &walk.descriptions {
            let step = framing.step(&mut window, at);
            let WalkStep::Record(record) = step.map_err(|error| blob.io_error(error))? else {
                continue;
            };
            framing = record.framing;
            let content = window.get(at, record.bytes as usize);
            let content = content.map_err(|error| blob.io_error(error))?;
            Interface::describe(content.unwrap_or_default(), &framing, &mut interfaces)
                .map_err(|reason| blob.damaged(format!("byte {at}: the capture "), reason))?;
        }
    }
    Ok(parts)
}
