use std::path::Path;
use std::sync::Arc;

use forebay_io::sim::SimDisk;
use forebay_io::{Disk, SystemClock};

use super::*;
use crate::catalog::DirectoryCatalog;
use crate::model::{DocRef, NEWEST_FORMAT};

const CLUSTER: ClusterId = ClusterId(7);

fn empty() -> DirectoryCatalog {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/store")).unwrap();
    DirectoryCatalog::new(Arc::new(disk), Arc::new(SystemClock), Path::new("/store"))
}

/// Returns the memory of a node whose catalog has just this revision.
fn memory(revision: u64) -> Memory {
    let mut model = Model::default();
    let mut count = 0;
    let written = model.write(NEWEST_FORMAT, || {
        count += 1;
        DocRef::new(&format!("{revision}-{count}"))
    });
    let (documents, roots) = written.unwrap();
    Memory {
        from: format!("cache-{revision}"),
        identity: Identity {
            forebay_cluster: NEWEST_FORMAT,
            id: CLUSTER,
            name: "shop".to_owned(),
            created_unix_ms: 1,
        },
        head: Head {
            revision,
            term: 3,
            roots,
            ..Head::first(CLUSTER, revision)
        },
        model,
        documents,
    }
}

fn filled(memory: &Memory) -> DirectoryCatalog {
    let catalog = empty();
    let documented = Documented(&catalog);
    documented.put_documents(&memory.documents).unwrap();
    put_back(&catalog, IDENTITY, written(2, &memory.identity).unwrap()).unwrap();
    documented.put_head(&memory.head, None).unwrap();
    catalog
}

fn restored(catalog: &DirectoryCatalog, memories: Vec<Memory>) -> Head {
    let restore = Restore::plan(catalog, memories, 5).unwrap();
    restore.carry_out(catalog).unwrap();
    let documented = Documented(catalog);
    let (head, _) = documented.head().unwrap();
    documented.model(&head, &Model::default()).unwrap();
    assert_eq!(documented.identity().unwrap().id, CLUSTER);
    head
}

#[test]
fn the_newest_memory_becomes_a_catalog_with_a_higher_revision() {
    let catalog = empty();
    catalog.put_if("requests/old", "x".into(), None).unwrap();
    catalog
        .put_if(COORDINATOR_LEASE, "damaged".into(), None)
        .unwrap();
    let head = restored(&catalog, vec![memory(8), memory(9), memory(4)]);
    assert_eq!((head.revision, head.term), (10, 3 + TERMS));
    assert_eq!(head.roots, memory(9).head.roots);
    assert!(catalog.list("requests").unwrap().is_empty());
    assert_eq!(catalog.get(COORDINATOR_LEASE).unwrap(), None);
}

#[test]
fn an_intact_catalog_is_kept_and_an_old_copy_is_replaced() {
    let catalog = filled(&memory(9));
    let refused = Restore::plan(&catalog, vec![memory(9)], 5);
    assert!(matches!(
        refused,
        Err(RestoreError::Whole {
            found: 9,
            newest: 9
        })
    ));
    let old = filled(&memory(5));
    assert_eq!(restored(&old, vec![memory(9)]).revision, 10);
}

#[test]
fn a_catalog_with_any_damaged_document_is_restored() {
    for name in [HEAD, IDENTITY, "d/9-1"] {
        let catalog = filled(&memory(9));
        let (_, seen) = catalog.get(name).unwrap().unwrap();
        let damage = catalog.put_if(name, "damage".into(), Some(&seen));
        assert!(matches!(damage, Ok(WriteOutcome::Done(_))));
        assert_eq!(restored(&catalog, vec![memory(9)]).revision, 10, "{name}");
        let catalog = filled(&memory(9));
        catalog.remove(name).unwrap();
        assert_eq!(restored(&catalog, vec![memory(9)]).revision, 10, "{name}");
    }
    // The known revision is lower than that of the damaged catalog: the revision increases
    // nevertheless.
    let catalog = filled(&memory(12));
    catalog.remove("d/12-1").unwrap();
    assert_eq!(restored(&catalog, vec![memory(9)]).revision, 13);
}

#[test]
fn a_catalog_that_changes_during_a_restore_is_kept() {
    let catalog = filled(&memory(5));
    let restore = Restore::plan(&catalog, vec![memory(9)], 5).unwrap();
    let (head, seen) = Documented(&catalog).head().unwrap();
    let next = Head {
        revision: 6,
        stamp: 6,
        ..head
    };
    Documented(&catalog).put_head(&next, Some(&seen)).unwrap();
    let refused = restore.carry_out(&catalog);
    assert!(matches!(refused, Err(RestoreError::Changed)), "{refused:?}");
    assert_eq!(Documented(&catalog).head().unwrap().0, next);
}

#[test]
fn a_catalog_of_another_cluster_or_a_newer_program_is_kept() {
    let other = Memory {
        identity: Identity {
            id: ClusterId(8),
            ..memory(9).identity
        },
        head: Head {
            cluster: ClusterId(8),
            ..memory(9).head
        },
        ..memory(9)
    };
    let refused = Restore::plan(&empty(), vec![memory(5), other.clone()], 5);
    assert!(matches!(refused, Err(RestoreError::Several { .. })));
    let refused = Restore::plan(&filled(&memory(5)), vec![other], 5);
    assert!(matches!(refused, Err(RestoreError::OtherCluster { .. })));
    let catalog = filled(&memory(5));
    let (head, seen) = Documented(&catalog).head().unwrap();
    let newer = written(NEWEST_FORMAT + 1, &head).unwrap();
    catalog.put_if(HEAD, newer.into(), Some(&seen)).unwrap();
    let refused = Restore::plan(&catalog, vec![memory(9)], 5).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains(&format!("is of format {}", NEWEST_FORMAT + 1))
            && text.contains("use forebay"),
        "{text}"
    );
    assert!(matches!(
        Restore::plan(&empty(), Vec::new(), 5),
        Err(RestoreError::NoMemory)
    ));
}
