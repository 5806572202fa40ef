//! Every call failing in every way, and power cuts at any moment.

use forebay_io::sim::Fault;

use super::model::{Change, Model};
use super::*;

/// The results that a round of writing got.
#[derive(Default)]
struct SyncReport {
    /// The log after each successful write; then perhaps after a write whose state is unknown.
    models: Vec<Model>,
    /// The first of them that may be found after a power cut, and after a kill.
    durable: usize,
    written: usize,
}

/// Writes of two busy groups and an idle one, trims and removals. Continues after every refusal.
fn write(disk: &SimDisk, durability: Durability) -> SyncReport {
    let mut reported = SyncReport {
        models: vec![Model::default()],
        ..SyncReport::default()
    };
    let mut model = Model::default();
    let Ok((log, _)) = open_with(disk, options(durability, 700)) else {
        return reported;
    };
    for number in 1..=12 {
        let mut changes = vec![entries(1, &[(number, number)]), entries(2, &[(1, number)])];
        if number == 1 {
            let promise = Some(b"idle".to_vec());
            changes.push(Change {
                promise,
                ..entries(3, &[(1, 1)])
            });
        }
        // After a refusal the next write continues from the current state.
        for change in &mut changes {
            let last = model
                .0
                .get(&change.group)
                .map_or(0, |known| known.last().index);
            for entry in &mut change.entries {
                entry.place.index = last + 1;
            }
        }
        let mut next = model.clone();
        next.take(&changes);
        match append(&log, &changes) {
            Ok(lsn) => {
                model = next.clone();
                reported.models.push(next);
                reported.written = reported.models.len() - 1;
                if durability == Durability::Sync && log.wait_durable(lsn).is_ok() {
                    reported.durable = reported.written;
                }
            }
            Err(ReplicaLogError::Log(LogError::Closed { .. })) => reported.models.push(next),
            Err(_) => disk.make_room(),
        }
        for (group, through) in [(1, number - 1), (2, number)] {
            log.trim(group, through);
            model.trim(group, through);
            for known in &mut reported.models {
                known.trim(group, through);
            }
        }
        if number % 4 == 0
            && let Ok(removed) = log.remove_unneeded(0)
            && removed.removed_bytes > 0
        {
            reported.durable = reported.written;
        }
    }
    if log.close().is_ok() {
        reported.durable = reported.written;
    }
    reported
}

fn check(disk: &SimDisk, durability: Durability, models: &[Model], words: &str) {
    let (log, opened) = open_with(disk, options(durability, 700)).expect(words);
    let mut differ = models
        .iter()
        .map(|known| known.differs(&opened.groups, &log));
    assert!(
        differ.any(|differs| differs.is_none()),
        "{words}: {opened:?} is none of {}: {:?}",
        models.len(),
        models
            .last()
            .map(|known| known.differs(&opened.groups, &log))
    );
}

#[test]
fn every_call_may_fail() {
    for durability in MODES {
        let whole = SimDisk::new();
        let reported = write(&whole, durability);
        assert_eq!((reported.durable, reported.written), (12, 12));
        assert!(!whole.files().contains(&file(1)), "{:?}", whole.files());
        let calls = whole.calls();
        for nth in 0..calls {
            for fault in [Fault::Error, Fault::Full, Fault::NoFiles, Fault::Dead] {
                let disk = SimDisk::new();
                disk.plan(nth, fault);
                let reported = write(&disk, durability);
                let words = format!("{durability}, call {nth} of {calls}, {fault:?}");
                let known = &reported.models[reported.written..];
                check(&disk.after_kill(), durability, known, &words);
                for seed in 0..3 {
                    let words = format!("{words}, power cut {seed}");
                    let known = &reported.models[reported.durable..];
                    check(&disk.after_power_cut(seed), durability, known, &words);
                }
            }
        }
    }
}

#[test]
fn opening_may_fail_at_every_call_and_be_tried_again() {
    let base = SimDisk::new();
    let reported = write(&base, Durability::Os);
    let known = &reported.models[reported.written..];
    let whole = base.after_kill();
    let before = whole.calls();
    drop(open_with(&whole, options(Durability::Os, 700)).unwrap());
    for nth in 0..whole.calls() - before {
        for fault in [Fault::Error, Fault::Dead] {
            let disk = base.after_kill();
            disk.plan(nth, fault);
            let opened = open_with(&disk, options(Durability::Os, 700));
            let words = format!("call {nth}, {fault:?}");
            // The last calls are those of the drop.
            drop(opened);
            check(&disk.after_kill(), Durability::Os, known, &words);
            for seed in 0..4 {
                check(&disk.after_power_cut(seed), Durability::Os, known, &words);
            }
        }
    }
}

#[test]
fn without_room_only_that_write_is_refused() {
    let whole = SimDisk::new();
    write(&whole, Durability::Sync);
    for fault in [Fault::Full, Fault::NoFiles] {
        for nth in 0..whole.calls() {
            let disk = SimDisk::new();
            let (log, _) = open_with(&disk, options(Durability::Os, 700)).unwrap();
            disk.plan(nth, fault);
            let mut expected = Model::default();
            for number in 1..=20 {
                let change = entries(number % 3, &[(1, 1 + number / 3)]);
                let mut change = change;
                let known = expected.0.get(&change.group);
                change.entries[0].place.index = known.map_or(0, |known| known.last().index) + 1;
                match append(&log, std::slice::from_ref(&change)) {
                    Ok(_) => expected.take(&[change]),
                    Err(error) => {
                        let full = matches!(error, ReplicaLogError::Log(LogError::Full { .. }));
                        assert!(full, "{error}");
                        disk.make_room();
                    }
                }
            }
            disk.make_room();
            assert!(log.failure().is_none());
            log.close().unwrap();
            let (log, opened) = open(&disk).unwrap();
            let differs = expected.differs(&opened.groups, &log);
            assert_eq!(differs, None, "call {nth}");
        }
    }
}
