//! The end of a push: the gate, the commit, the swap.

use std::sync::Arc;

use forebay_engine::{
    Comparison, HistoryAction, HistoryNote, Manifest, Push, ReadError, Store, StoreError, Table,
    Version, compare_sampled,
};

use super::report::UnservedVersion;
use super::{BaseVersion, GATE_SAMPLE_ROWS, PushError, PushRequest};
use crate::gate::{self, Finding, Limit, MOVED_MEANWHILE};
use crate::progress::{Progress, Unit};

/// What became of the version.
pub struct Outcome {
    pub version: u64,
    pub swapped: bool,
    /// The version that it was compared with.
    pub compared_with: Option<u64>,
    pub gate: Vec<Finding>,
    pub undone: Option<UnservedVersion>,
    pub removed: Vec<u64>,
}

/// Compares the version with the serving one, makes it visible, and lets it serve unless a limit
/// was passed. `base`: the version whose runs it goes on with.
pub fn publish(
    request: &PushRequest,
    store: &Store,
    push: Push,
    manifest: Manifest,
    base: Option<u64>,
    progress: &dyn Progress,
) -> Result<Outcome, PushError> {
    let table = push.table().clone();
    let version = push.open(&manifest)?;
    let (compared_with, mut gate) =
        compare_with_serving(request, store, &table, &version, progress)?;
    drop(version);
    let served = push.served();
    let mut committed = push.commit_held(manifest)?;
    // The pointer's lock is held: nobody moves it before the swap.
    gate.extend(moved_meanwhile(request, &table, served, base)?);
    let version = committed.version();
    let passed = gate.iter().all(|finding| finding.passed);
    let mut swapped = request.swap && (passed || request.force);
    let mut undone = None;
    if request.swap && !swapped {
        committed.note(
            HistoryAction::Held,
            held_note(version, compared_with, &gate),
        );
    }
    if swapped {
        match committed.swap(request.keep) {
            Err(StoreError::NotRolledOut { problem, gave_way }) => {
                swapped = false;
                let note = HistoryNote {
                    to: Some(version),
                    problem: Some(problem.clone()),
                    ..HistoryNote::default()
                };
                committed.note(HistoryAction::Push, note);
                undone = Some(UnservedVersion { problem, gave_way });
            }
            done => drop(done?),
        }
    }
    // The version is out; that an old one could not be removed does not undo it.
    let removed = committed.retain(request.keep).unwrap_or_else(|error| {
        progress.message(&format!("old versions were not removed: {error}"));
        Vec::new()
    });
    Ok(Outcome {
        version,
        swapped,
        compared_with,
        gate,
        undone,
        removed,
    })
}

/// What the history says of a version that the gate held.
fn held_note(version: u64, serving: Option<u64>, gate: &[Finding]) -> HistoryNote {
    let failed = gate.iter().filter(|finding| !finding.passed);
    let words: Vec<String> = failed
        .map(|finding| format!("{}: {}", finding.limit, finding.seen))
        .collect();
    HistoryNote {
        from: serving,
        to: Some(version),
        problem: Some(words.join("; ")),
    }
}

/// A push that began before a rollback, or another swap, does not undo it; one onto what serves
/// does not bring back what was rolled back.
fn moved_meanwhile(
    request: &PushRequest,
    table: &Table,
    served: Option<u64>,
    base: Option<u64>,
) -> Result<Option<Finding>, PushError> {
    let serving = table.pointer()?.serving;
    let name = |version: Option<u64>| match version {
        Some(version) => format!("version {version}"),
        None => "no version".to_owned(),
    };
    let (limit, before) = match request.onto {
        Some(BaseVersion::Current) if serving != base => (
            "onto current",
            format!("and this one goes on with {}", name(base)),
        ),
        _ if request.swap && serving != served => (
            MOVED_MEANWHILE,
            format!("and {} did when this push began", name(served)),
        ),
        _ => return Ok(None),
    };
    Ok(Some(Finding {
        limit: limit.to_owned(),
        seen: format!("{} serves now, {before}", name(serving)),
        passed: false,
        reported: false,
        remedy: None,
    }))
}

/// The version that this one was compared with, and what the gate says; nothing where no version
/// serves.
fn compare_with_serving(
    request: &PushRequest,
    store: &Store,
    table: &Table,
    new: &Arc<Version>,
    progress: &dyn Progress,
) -> Result<(Option<u64>, Vec<Finding>), PushError> {
    let limits = gate::limits(&request.limits);
    beside_serving(table, &limits, |serving| {
        progress.stage("comparing", None, Unit::Rows);
        let advance = |rows| progress.advance(rows);
        let random = &**store.random();
        compare_sampled(serving, new, GATE_SAMPLE_ROWS, random, &advance)
    })
}

/// The same by any way to compare. Where the version that serves cannot be read, that holds the new
/// one: what nobody compared is not let pass.
pub fn beside_serving(
    table: &Table,
    limits: &[Limit],
    compare: impl FnOnce(&Arc<Version>) -> Result<Comparison, ReadError>,
) -> Result<(Option<u64>, Vec<Finding>), PushError> {
    let Some(number) = table.pointer()?.serving else {
        return Ok((None, Vec::new()));
    };
    let serving = table.open_version(number);
    Ok(match serving.and_then(|serving| compare(&serving)) {
        Ok(seen) => (Some(number), gate::check(limits, &seen)),
        Err(error) => (None, vec![gate::not_compared(number, &error)]),
    })
}
