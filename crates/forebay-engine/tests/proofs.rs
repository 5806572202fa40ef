//! Proofs of installed versions, and how long they are valid.
#![allow(clippy::unwrap_used)]

use std::io::Write;

use crate::common::partial::{Ids, install, manifest, partial, source, table};
use crate::common::{self, draft, name, root, rows, store_on, write_run};
use forebay_engine::{PartitionProof, PushOptions, Store, VersionFile};
use forebay_io::Disk;
use forebay_io::sim::{Fault, SimDisk};
use forebay_run::Order;
use forebay_run::operation::Operation;

fn ids(proof: &[PartitionProof]) -> Vec<u32> {
    proof.iter().map(|partition| partition.id.0).collect()
}

#[test]
fn only_unverified_files_are_read() {
    let (there, other) = source(Order::Hashed, 1);
    let here = SimDisk::new();
    let (store, held) = partial(&here);
    held.set([4, 1]);
    install(&there, &here, &store, 1);
    let bytes = manifest(&there, 1);
    let first = table(&store).proven(1).unwrap().unwrap();
    assert_eq!(ids(&first.partitions), [1, 4]);
    let whole = table(&other).manifest(1).unwrap();
    for proof in &first.partitions {
        let totals = whole.partitions[proof.id.0 as usize].totals;
        assert_eq!((proof.rows, proof.content), (totals.rows, totals.content));
    }
    held.set([1, 2]);
    assert_eq!(table(&store).proven(1).unwrap(), None);
    store.clock().sleep(std::time::Duration::from_secs(1));
    let more = store.begin_install(&name("t"), &bytes).unwrap();
    let missing = more.missing().to_vec();
    assert_eq!(missing.len(), 1);
    fetch(&there, &here, &missing[0], false).unwrap();
    assert_eq!(ids(&more.proof().partitions), [1]);
    assert_eq!(more.verify(&mut |_| {}).unwrap().runs, 1);
    assert_eq!(more.verify(&mut |_| {}).unwrap().runs, 0);
    more.commit().unwrap();
    let second = table(&store).proven(1).unwrap().unwrap();
    assert_eq!(ids(&second.partitions), [1, 2]);
    assert_eq!(second.partitions[0], first.partitions[0]);
    assert!(second.partitions[1].read_unix_ms > first.partitions[0].read_unix_ms);
}

#[test]
fn runs_that_versions_share_are_read_once() {
    let (there, other) = source(Order::Hashed, 1);
    // Version 2 is version 1 with one more run in one partition.
    let base = table(&other).manifest(1).unwrap();
    let push = other
        .begin_push(&name("t"), PushOptions::default())
        .unwrap();
    let version = table(&other).open_version(1).unwrap();
    let key = b"key-00007";
    let place = version.partition_of(key).unwrap();
    let run = write_run(&push, place, Order::Hashed, &[(key, Operation::Delete)]).unwrap();
    let mut runs = base.partitions[place].runs.clone();
    runs.push(run);
    let layered = base.clone().with_runs(place, runs).partitions;
    let manifest_2 = push.manifest(draft(Order::Hashed, layered)).unwrap();
    push.commit(manifest_2).unwrap();

    let here = SimDisk::new();
    let (store, held) = partial(&here);
    held.set(0..6);
    install(&there, &here, &store, 1);
    let bytes = manifest(&there, 2);
    let second = store.begin_install(&name("t"), &bytes).unwrap();
    assert_eq!(second.proof().partitions.len(), 5);
    fetch(&there, &here, &second.missing()[0].clone(), false).unwrap();
    assert_eq!(second.verify(&mut |_| {}).unwrap().runs, 2);
    second.commit().unwrap();
    let proof = table(&store).proven(2).unwrap().unwrap();
    let rows = |at: usize| base.partitions[at].totals.rows - u64::from(at == place);
    for (at, found) in proof.partitions.iter().enumerate() {
        assert_eq!(found.rows, rows(at), "the rows of all runs together");
    }
    // If it is damaged, the proof is valid for neither of them.
    table(&store)
        .disprove(&[base.partitions[place].runs[0].id.clone()])
        .unwrap();
    for version in [1, 2] {
        assert_eq!(
            table(&store)
                .proof(version)
                .unwrap()
                .unwrap()
                .partitions
                .len(),
            5
        );
    }
    let report = table(&store).verify(1, &mut |_| {}).unwrap();
    table(&store).prove(&report).unwrap();
    assert_eq!(table(&store).proof(1).unwrap().unwrap().partitions.len(), 6);
}

#[test]
fn runs_that_an_install_reuses_are_not_removed() {
    let (there, other) = source(Order::Hashed, 1);
    let base = table(&other).manifest(1).unwrap();
    let push = other
        .begin_push(&name("t"), PushOptions::default())
        .unwrap();
    let same = push
        .manifest(draft(Order::Hashed, base.partitions.clone()))
        .unwrap();
    push.commit(same).unwrap();
    common::push(&other, "t", Order::Hashed, &rows(3, 120), 6).unwrap();
    let here = SimDisk::new();
    let (store, held) = partial(&here);
    held.set(0..6);
    install(&there, &here, &store, 1);
    install(&there, &here, &store, 3);
    table(&store).swap(3).unwrap();
    let second = store
        .begin_install(&name("t"), &manifest(&there, 2))
        .unwrap();
    assert!(second.missing().is_empty());
    assert_eq!(table(&store).retain(1).unwrap(), [1]);
    assert_eq!(second.verify(&mut |_| {}).unwrap().runs, 0);
    second.commit().unwrap();
    let report = table(&store).verify(2, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(table(&store).retain(1).unwrap(), [2]);
    let runs = here.files().into_iter();
    assert_eq!(
        runs.filter(|path| path.extension().is_some_and(|e| e == "run"))
            .count(),
        6
    );
}

#[test]
fn a_note_is_removed_with_its_version() {
    let (there, _) = source(Order::Hashed, 2);
    let here = SimDisk::new();
    let (store, held) = partial(&here);
    held.set([0]);
    let note = root().join("tables/t/versions/1.verified");
    install(&there, &here, &store, 1);
    install(&there, &here, &store, 2);
    assert!(here.exists(&note).unwrap());
    table(&store).swap(2).unwrap();
    assert_eq!(table(&store).retain(1).unwrap(), [1]);
    assert!(!here.exists(&note).unwrap());
    here.create(&note).unwrap();
    install(&there, &here, &store, 2);
    assert!(!here.exists(&note).unwrap());
    here.tamper(&root().join("tables/t/versions/2.verified"), |bytes| {
        bytes[30] ^= 1
    });
    assert_eq!(table(&store).proof(2).unwrap(), None);
}

/// Fetches a file as a pull does: under another name until it is durable.
fn fetch(from: &SimDisk, to: &SimDisk, file: &VersionFile, damaged: bool) -> Option<()> {
    let mut bytes = from.read(&file.path).unwrap();
    if damaged {
        bytes[700] ^= 1;
    }
    let part = file.path.with_extension("part");
    let _ = to.remove(&part);
    let mut out = to.create(&part).ok()?;
    out.write_all(&bytes).and_then(|()| out.sync()).ok()?;
    to.rename(&part, &file.path).ok()
}

/// Changes the held partitions, and fetches those of a version; each file is fetched damaged before
/// it is fetched sound. Stops at errors.
fn change(there: &SimDisk, here: &SimDisk, store: &Store, held: &Ids) -> Option<()> {
    held.set([2, 3]);
    store
        .table(&name("t"))
        .and_then(|table| table.release())
        .ok()?;
    held.set([0, 2]);
    let bytes = manifest(there, 1);
    let coming = store.begin_install(&name("t"), &bytes).ok()?;
    for file in coming.missing() {
        fetch(there, here, file, true)?;
    }
    let damaged = coming.verify(&mut |_| {}).ok()?.damaged;
    for file in coming
        .missing()
        .iter()
        .filter(|file| damaged.contains(&file.run))
    {
        fetch(there, here, file, false)?;
    }
    coming
        .verify(&mut |_| {})
        .ok()?
        .problems
        .is_empty()
        .then_some(())?;
    coming.commit().ok().map(drop)
}

#[test]
fn runs_that_a_note_names_are_sound_after_any_failure() {
    let (there, _) = source(Order::Hashed, 1);
    let base = SimDisk::new();
    let (store, held) = partial(&base);
    held.set([0, 1, 2]);
    install(&there, &base, &store, 1);
    let whole = base.after_kill();
    let (store, held) = partial(&whole);
    let calls = whole.calls();
    change(&there, &whole, &store, &held).unwrap();
    let calls = whole.calls() - calls;
    for nth in 0..calls {
        for fault in [Fault::Error, Fault::Full, Fault::Dead] {
            let disk = base.after_kill();
            let (store, held) = partial(&disk);
            disk.plan(nth, fault);
            let done = change(&there, &disk, &store, &held).is_some();
            for found in [
                disk.after_kill(),
                disk.after_power_cut(1),
                disk.after_power_cut(2),
            ] {
                let words = format!("call {nth} of {calls}, {fault:?}");
                let store = store_on(&found, 9);
                let table = table(&store);
                let proof = table
                    .proof(1)
                    .unwrap()
                    .map_or(Vec::new(), |proof| proof.partitions);
                let report = table.verify(1, &mut |_| {}).unwrap();
                let runs = &table.manifest(1).unwrap().partitions;
                for proven in &proof {
                    let run = &runs[proven.id.0 as usize].runs[0].id;
                    let path = root().join(format!("tables/t/runs/{run}.run"));
                    let is_here = found.exists(&path).unwrap();
                    assert!(!is_here || !report.damaged.contains(run), "{words}");
                }
                if done {
                    assert!(
                        ids(&proof).ends_with(&[2]) && ids(&proof).starts_with(&[0]),
                        "{words}"
                    );
                }
                let (store, held) = partial(&found);
                held.set([0, 2, 3]);
                assert!(rows(1, 120).len() > install_sound(&there, &found, &store));
            }
        }
    }
}

/// Fetches the files that are missing or were not verified; returns their number.
fn install_sound(there: &SimDisk, here: &SimDisk, store: &Store) -> usize {
    let bytes = manifest(there, 1);
    let coming = store.begin_install(&name("t"), &bytes).unwrap();
    for file in coming.missing() {
        fetch(there, here, file, false).unwrap();
    }
    let damaged = coming.verify(&mut |_| {}).unwrap().damaged;
    for file in coming
        .files()
        .iter()
        .filter(|file| damaged.contains(&file.run))
    {
        fetch(there, here, file, false).unwrap();
    }
    assert!(coming.verify(&mut |_| {}).unwrap().problems.is_empty());
    let came = coming.missing().len() + damaged.len();
    coming.commit().unwrap();
    let report = table(store).verify(1, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty());
    assert!(table(store).proven(1).unwrap().is_some());
    came
}
