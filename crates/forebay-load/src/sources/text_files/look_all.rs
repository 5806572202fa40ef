//! Inspects all rows of text files to infer the types of their columns, with several threads.
//!
//! The threads work on the parts that are read in parallel.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use forebay_io::pool;

use super::guesses::{Guesses, SeenType};
use super::look::Look;
use super::text::{TextFile, TextPart};
use crate::sources::SourceSet;
use crate::sources::blob::Blob;
use crate::sources::error::SourceError;
use crate::sources::format::Packing;

/// A part of a text file, with the file and its bytes.
pub(in crate::sources) type TextUnit<'s> = (&'s Blob, &'s TextFile, &'s TextPart);

/// The results of the parts, joined in order, so that columns are in the order of the rows.
#[derive(Default)]
struct Joined {
    guesses: Guesses,
    next: usize,
    waiting: BTreeMap<usize, SeenType>,
}

impl SourceSet {
    /// Returns the bytes of text that [`SourceSet::look_at_all`] reads.
    pub fn text_bytes(&self) -> u64 {
        let text = self.units.iter().filter(|unit| unit.text().is_some());
        text.map(|unit| unit.bytes()).sum()
    }

    /// Inspects all rows of all text files to infer the types of their columns. `tick` receives the
    /// number of bytes read; its error ends the work and is returned.
    pub fn look_at_all<E: From<SourceError> + Send>(
        &self,
        threads: usize,
        tick: &(dyn Fn(u64) -> Result<(), E> + Sync),
    ) -> Result<Guesses, E> {
        let units: Vec<TextUnit<'_>> = self.units.iter().filter_map(|unit| unit.text()).collect();
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let joined = Mutex::new(Joined::default());
        let failed = Mutex::new(None);
        let work = || -> Result<(), E> {
            while !stop.load(Relaxed) {
                let number = next.fetch_add(1, Relaxed);
                let Some(unit) = units.get(number) else { break };
                let seen = look_at(*unit, tick)?;
                let mut joined = joined.lock().unwrap_or_else(PoisonError::into_inner);
                joined.add(&units, number, seen)?;
            }
            Ok(())
        };
        let stopping = || {
            if let Err(error) = work() {
                stop.store(true, Relaxed);
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert(error);
            }
        };
        pool(threads.min(units.len()), stopping);
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let joined = joined.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(joined.guesses)
    }
}

impl Joined {
    fn add(
        &mut self,
        units: &[TextUnit<'_>],
        number: usize,
        seen: SeenType,
    ) -> Result<(), SourceError> {
        self.waiting.insert(number, seen);
        while let Some(seen) = self.waiting.remove(&self.next) {
            let (blob, file, _) = units[self.next];
            self.guesses.add(&blob.name, &file.names, seen)?;
            self.next += 1;
        }
        Ok(())
    }
}

fn look_at<E: From<SourceError>>(
    (blob, file, part): TextUnit<'_>,
    tick: &(dyn Fn(u64) -> Result<(), E> + Sync),
) -> Result<SeenType, E> {
    let plain = file.packing == Packing::Plain;
    let mut look = Look::new(&file.format, file.names.len(), &file.given);
    file.chunks(blob, part, &mut |chunk| {
        look.look(&blob.name, chunk)?;
        tick(if plain { chunk.bytes.len() as u64 } else { 0 })
    })?;
    if !plain {
        tick(part.range.end - part.range.start)?;
    }
    Ok(look.finish())
}
