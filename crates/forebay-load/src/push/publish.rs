//! Ends a push: the gate, the commit and the swap.

use std::sync::Arc;

use forebay_engine::{
    Comparison, HistoryAction, HistoryNote, Manifest, Push, ReadError, Store, StoreError, Table,
    Version, compare_sampled,
};

use super::report::UnservedVersion;
use super::{BaseVersion, GATE_SAMPLE_ROWS, PushError, PushRequest};
use crate::gate::{self, Finding, Limit, MOVED_MEANWHILE};
use crate::progress::{Progress, Unit};

/// The result of publishing a version.
pub struct Outcome {
    pub version: u64,
    pub swapped: bool,
    /// The version with which it was compared.
    pub compared_with: Option<u64>,
    pub gate: Vec<Finding>,
    pub undone: Option<UnservedVersion>,
    pub removed: Vec<u64>,
}

/// Compares the version with the serving one, makes it visible, and swaps it in unless a limit is
/// broken. `base` is the version whose runs it keeps.
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
    // The pointer's lock is held, so the pointer cannot change before the swap.
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
    // The version is published. A failure to remove an old version does not undo that.
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

/// Returns the history's note about a version that the gate held.
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

/// Holds a version if the serving version changed since the push began. A push does not undo a
/// later rollback or swap. A push onto the serving version does not restore what was rolled back.
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
            format!("and this one is based on {}", name(base)),
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

/// Returns the version that this one was compared with, and the gate's findings; nothing if no
/// version serves.
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

/// Compares with the serving version by the given function. If the serving version cannot be read,
/// the new one is held, because it was not compared.
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
