//! Reads sources whose types are inferred: once, or twice.
//!
//! Text files are read with the types that their first rows show. That costs nothing if these are
//! the types of all rows. If a row has another type, reading stops. The types of all rows are then
//! determined, and reading restarts once. The collected records are dropped; spilled runs and the
//! file of bad rows are removed.

use std::sync::Arc;

use super::PushError;
use crate::encode::RowEncoder;
use crate::progress::{Progress, Unit};
use crate::sort::{SortError, SortPlan};
use crate::sources::{Guesses, SourceError, SourceOptions, SourceSet};
use forebay_io::Throttle;

/// The name of the stage in progress reports.
const STAGE: &str = "looking at all rows for their types";

/// Opened sources, and the encoder of their rows.
pub type OpenSources = (SourceSet, RowEncoder);

/// The state needed to restart reading.
pub struct SourceReader<'a> {
    /// The plan whose spilled runs are dropped; `None` if nothing is written.
    pub plan: Option<&'a SortPlan>,
    pub threads: usize,
    pub throttle: &'a Throttle,
    pub progress: &'a dyn Progress,
}

impl SourceReader<'_> {
    /// Reads sources that were opened with `options`. If the inferred types are wrong, `open` gets
    /// options with the types of all rows, and must open the same sources with them. They are then
    /// read from their beginning.
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

/// Rewrites the error for types that come from a table, which the user cannot change.
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
