//! The owner's side of a load: it takes offers and adds their runs.

use std::io::{self, Write};

use forebay_io::Disk;
use tracing::warn;

use super::offer::{Offer, OfferState, file_of, loader_lives, pending, read, staged};
use crate::error::{At, StoreError};
use crate::live::basics::error::LiveError;
use crate::live::partition::shared::LiveShared;
use crate::name::RunId;

/// The outcome of a load that waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadOutcome {
    /// This many runs were added.
    Added { runs: usize },
    /// Nothing was added.
    Refused { why: String },
}

impl LiveShared {
    /// See [`LiveTable::take_load`](crate::live::LiveTable::take_load); `names` are those in the
    /// table's directory.
    pub fn take_load(&self, names: &[String]) -> Result<Option<LoadOutcome>, StoreError> {
        let disk = &**self.disk();
        let Some((id, state)) = pending(names) else {
            return Ok(None);
        };
        if !loader_lives(disk, &**self.clock(), &self.files)? {
            return Ok(None);
        }
        if state == OfferState::Offer
            && !self.move_load(&id, OfferState::Offer, OfferState::Taken)?
        {
            return Ok(None);
        }
        let Some(offer) = read(disk, &self.files, &id, OfferState::Taken)? else {
            return Ok(None);
        };
        let taken = match self.add_offered(&offer) {
            Ok(()) => LoadOutcome::Added {
                runs: offer.runs().len(),
            },
            Err(error) => LoadOutcome::Refused {
                why: error.to_string(),
            },
        };
        let state = match &taken {
            LoadOutcome::Added { .. } => OfferState::Done,
            LoadOutcome::Refused { why } => {
                self.say_why(&id, why);
                OfferState::Refused
            }
        };
        self.move_load(&id, OfferState::Taken, state)?;
        Ok(Some(taken))
    }

    fn add_offered(&self, offer: &Offer) -> Result<(), LiveError> {
        {
            let manifest = self.structure.lock();
            if manifest.last_load.as_ref() == Some(&offer.id) {
                return Ok(());
            }
            if manifest.table_id != offer.table_id {
                let table = self.shape.table.clone();
                let problem = "the load was made for a table of this name that was dropped since";
                return Err(LiveError::Ingest {
                    table,
                    problem: problem.to_owned(),
                });
            }
        }
        let runs = offer.runs();
        let moved = runs.iter().try_for_each(|run| self.unstage(&run.id));
        if let Err(error) = moved {
            self.remove_runs_unless_named(runs.iter().map(|run| &run.id));
            return Err(error.into());
        }
        self.ingest_load(&runs, &offer.id)
    }

    /// Renames a run's files to the names that the manifest will have, unless that is done.
    fn unstage(&self, id: &RunId) -> Result<(), StoreError> {
        let (disk, from) = (&**self.disk(), staged(id));
        // The extent is first: a run counts as moved when its own file is.
        let extent = (self.files.extent(&from), self.files.extent(id));
        rename_if_there(disk, &extent)?;
        let run = (self.files.run(&from), self.files.run(id));
        let moved = rename_if_there(disk, &run)?;
        if moved || disk.exists(&run.1).at("look for", &run.1)? {
            return Ok(());
        }
        Err(io::Error::from(io::ErrorKind::NotFound)).at("take", &run.0)
    }

    /// Moves the load from state `from` to state `to`. Returns whether it was in `from`.
    fn move_load(&self, id: &RunId, from: OfferState, to: OfferState) -> Result<bool, StoreError> {
        debug_assert!(
            matches!(
                (from, to),
                (OfferState::Offer, OfferState::Taken)
                    | (OfferState::Taken, OfferState::Done | OfferState::Refused)
            ),
            "load {id} goes from {from:?} to {to:?}"
        );
        let paths = (file_of(&self.files, id, from), file_of(&self.files, id, to));
        rename_if_there(&**self.disk(), &paths)
    }

    /// Writes the reason, if there is space for it.
    fn say_why(&self, id: &RunId, why: &str) {
        let path = file_of(&self.files, id, OfferState::Why);
        let written = self
            .disk()
            .create(&path)
            .and_then(|mut file| file.write_all(why.as_bytes()));
        if let Err(error) = written {
            let table = &self.shape.table;
            warn!(%table, %error, why, "the reason of a refused load cannot be reported");
        }
    }
}

fn rename_if_there(
    disk: &dyn Disk,
    (from, to): &(std::path::PathBuf, std::path::PathBuf),
) -> Result<bool, StoreError> {
    match disk.rename(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).at("rename", from),
    }
}
