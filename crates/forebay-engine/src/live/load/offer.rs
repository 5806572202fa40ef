//! The files by which a loader and a table's owner communicate.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use forebay_io::{Clock, Disk};
use serde::{Deserialize, Serialize};

use crate::documents::holder::{holder_words, try_lock};
use crate::documents::layout::{TableFiles, extent_file, run_file};
use crate::documents::seal::{DocumentError, seal, unseal};
use crate::error::{At, StoreError};
use crate::keys::partition::PartitionId;
use crate::live::IngestRun;
use crate::name::RunId;
use crate::publishing::cleanup::remove_if_there;

/// The format number of offers that this program writes and reads.
const OFFER_FORMAT: u64 = 1;
/// The prefix of the names of all files of loads, and of no others.
pub const PREFIX: &str = "load-";

/// The state of a load, which is the ending of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferState {
    Offer,
    Withdrawn,
    Taken,
    Done,
    Refused,
    /// Not a state: why it was refused.
    Why,
}

impl OfferState {
    fn ending(self) -> &'static str {
        match self {
            OfferState::Offer => "offer",
            OfferState::Withdrawn => "withdrawn",
            OfferState::Taken => "taken",
            OfferState::Done => "done",
            OfferState::Refused => "refused",
            OfferState::Why => "why",
        }
    }
}

pub fn file_of(files: &TableFiles, id: &RunId, state: OfferState) -> PathBuf {
    files.dir.join(format!("{PREFIX}{id}.{}", state.ending()))
}

/// Returns the name of a run until it is taken.
pub fn staged(id: &RunId) -> RunId {
    RunId::plain(format!("{PREFIX}{id}"))
}

/// The runs of a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    forebay_load: u64,
    pub id: RunId,
    /// The id of the table that the load was made for.
    pub table_id: u64,
    runs: Vec<OfferedRun>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfferedRun {
    partition: PartitionId,
    id: RunId,
}

impl Offer {
    pub fn new(id: RunId, table_id: u64, runs: &[IngestRun]) -> Self {
        let runs = runs.iter().map(|run| OfferedRun {
            partition: run.partition,
            id: run.id.clone(),
        });
        Self {
            forebay_load: OFFER_FORMAT,
            id,
            table_id,
            runs: runs.collect(),
        }
    }

    pub fn runs(&self) -> Vec<IngestRun> {
        let run = |run: &OfferedRun| IngestRun {
            partition: run.partition,
            id: run.id.clone(),
        };
        self.runs.iter().map(run).collect()
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>, DocumentError> {
        seal(self).map(|(bytes, _)| bytes)
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        unseal(bytes, "forebay_load", OFFER_FORMAT).map(|(offer, _)| offer)
    }
}

/// Returns the load that waits or is being taken, and its state, from the names in the table's
/// directory.
pub fn pending(names: &[String]) -> Option<(RunId, OfferState)> {
    let mut found = names.iter().filter_map(|name| {
        let (id, ending) = name.strip_prefix(PREFIX)?.split_once('.')?;
        let states = [OfferState::Offer, OfferState::Taken];
        let state = states.into_iter().find(|state| state.ending() == ending)?;
        Some((RunId::new(id).ok()?, state))
    });
    found.next_back()
}

/// Reads an offer; `None` if it is gone.
pub fn read(
    disk: &dyn Disk,
    files: &TableFiles,
    id: &RunId,
    state: OfferState,
) -> Result<Option<Offer>, StoreError> {
    let path = file_of(files, id, state);
    let bytes = match disk.read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.at("read", &path)?,
    };
    let offer = Offer::parse(&bytes);
    let offer = offer.map_err(|problem| StoreError::Damaged { path, problem })?;
    Ok(Some(offer))
}

/// Returns whether the loader's process lives. If not, its files are removed.
pub fn loader_lives(
    disk: &dyn Disk,
    clock: &dyn Clock,
    files: &TableFiles,
) -> Result<bool, StoreError> {
    let words = holder_words(disk, clock, "cleaning up after a load");
    match try_lock(disk, &files.push_lock(), &words)? {
        Err(_holder) => Ok(true),
        Ok(_lock) => sweep(disk, files).map(|()| false),
    }
}

/// Removes the files of loads. REQUIRES the push lock. Runs that were taken stay: an owner may be
/// about to add them.
pub fn sweep(disk: &dyn Disk, files: &TableFiles) -> Result<(), StoreError> {
    // Other processes may have written to it.
    disk.look_again(&files.dir);
    for dir in [&files.dir, &files.runs()] {
        for name in disk.list(dir).at("list", dir)? {
            if name.starts_with(PREFIX) {
                remove_if_there(disk, &dir.join(name))?;
            }
        }
    }
    let scratch = files.scratch();
    if disk.exists(&scratch).at("look for", &scratch)? {
        disk.remove_dir_all(&scratch).at("remove", &scratch)?;
    }
    Ok(())
}

/// Returns the files among the runs that opening a table must keep for a live loader.
pub(crate) fn kept_for_load(
    disk: &dyn Disk,
    clock: &dyn Clock,
    files: &TableFiles,
) -> Result<HashSet<String>, StoreError> {
    let of_loads = |dir: PathBuf| -> Result<HashSet<String>, StoreError> {
        let names = disk.list(&dir).at("list", &dir)?;
        Ok(names
            .into_iter()
            .filter(|n| n.trim_start_matches('.').starts_with(PREFIX))
            .collect())
    };
    // An offer that is being written has a dot before its name.
    let mut kept = of_loads(files.runs())?;
    kept.extend(of_loads(files.dir.clone())?);
    if kept.is_empty() || !loader_lives(disk, clock, files)? {
        return Ok(HashSet::new());
    }
    // The previous owner may have died with some of the runs renamed.
    let names = disk.list(&files.dir).at("list", &files.dir)?;
    if let Some((id, state @ OfferState::Taken)) = pending(&names)
        && let Some(offer) = read(disk, files, &id, state)?
    {
        for run in offer.runs() {
            kept.extend([run_file(&run.id), extent_file(&run.id)]);
        }
    }
    Ok(kept)
}
