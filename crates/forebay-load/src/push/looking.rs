//! Reading sources whose types are guessed: once, or twice.
//!
//! Text files are read with the types that their first rows show, which costs nothing where these
//! are the types of all rows. Where a row is another, the reading stops, all rows are looked at for
//! their types, and the reading starts over, once: what was collected is dropped, spilled runs and
//! the file of bad rows are removed.

use std::sync::Arc;

use super::PushError;
use crate::encode::RowEncoder;
use crate::progress::{Progress, Unit};
use crate::sort::{SortError, SortPlan};
use crate::sources::{Guesses, SourceError, SourceOptions, SourceSet};
use forebay_io::Throttle;

/// The stage that progress tells of.
const STAGE: &str = "looking at all rows for their types";

/// Sources as they were opened, and what encodes their rows.
pub type OpenSources = (SourceSet, RowEncoder);

/// What starting over needs.
pub struct SourceReader<'a> {
    /// Whose spilled runs are dropped; none where nothing is written.
    pub plan: Option<&'a SortPlan>,
    pub threads: usize,
    pub throttle: &'a Throttle,
    pub progress: &'a dyn Progress,
}

impl SourceReader<'_> {
    /// Reads what was opened by `options`. Where the guess of the types fails, `open` gets options
    /// with those of all rows, and is to open the same sources by them; then they are read from
    /// their beginning.
    pub fn read<R, E: From<PushError>>(
        &self,
        options: &SourceOptions,
        (sources, encoder): OpenSources,
        open: impl FnOnce(&SourceOptions) -> Result<OpenSources, E>,
        read: impl Fn(&SourceSet, &RowEncoder) -> Result<R, PushError>,
    ) -> Result<(RowEncoder, R), E> {
        for note in sources.notes() {
            self.progress.message(&note);
        }
        let failed = match read(&sources, &encoder) {
            Err(PushError::Source(failed @ SourceError::GuessFailed { .. })) => failed,
            whole => return Ok((encoder, whole?)),
        };
        if let Some(plan) = self.plan {
            plan.remove_spills().map_err(PushError::from)?;
        }
        self.progress.message(&format!(
            "{failed}: all rows are looked at for their types, then the reading starts over"
        ));
        let guesses = self.look(&sources)?;
        drop((sources, encoder));
        let options = SourceOptions {
            guesses: Some(Arc::new(guesses)),
            ..options.clone()
        };
        let (sources, encoder) = open(&options)?;
        let read = read(&sources, &encoder)?;
        Ok((encoder, read))
    }

    fn look(&self, sources: &SourceSet) -> Result<Guesses, PushError> {
        let (progress, bytes) = (self.progress, sources.text_bytes());
        progress.stage(STAGE, Some(bytes), Unit::Bytes);
        let tick = |bytes| {
            if progress.is_cancelled() {
                return Err(SortError::Stopped.into());
            }
            progress.advance(bytes);
            self.throttle.take(bytes);
            Ok(())
        };
        sources.look_at_all(self.threads, &tick)
    }
}

/// The same error, where the types are those of a table: then no other can be given.
pub fn of_table(error: PushError) -> PushError {
    match error {
        PushError::BadRow {
            file,
            place,
            reason,
            ..
        } => PushError::BadRow {
            file,
            place,
            reason,
            advice: String::new(),
        },
        other => other,
    }
}
