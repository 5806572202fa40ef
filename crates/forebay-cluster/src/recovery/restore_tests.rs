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

/// Returns the cached catalog of a node whose catalog has just this revision.
fn cached_catalog(revision: u64) -> CachedCatalog {
    let mut model = Model::default();
    let mut count = 0;
    let written = model.write(NEWEST_FORMAT, || {
        count += 1;
        DocRef::new(&format!("{revision}-{count}"))
    });
    let (documents, roots) = written.unwrap();
    CachedCatalog {
        source: format!("cache-{revision}"),
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

fn filled(cached: &CachedCatalog) -> DirectoryCatalog {
    let catalog = empty();
    let documented = Documented(&catalog);
    documented.put_documents(&cached.documents).unwrap();
    put_back(&catalog, IDENTITY, written(2, &cached.identity).unwrap()).unwrap();
    documented.put_head(&cached.head, None).unwrap();
    catalog
}

fn restored(catalog: &DirectoryCatalog, cached: Vec<CachedCatalog>) -> Head {
    let restore = Restore::plan(catalog, cached, 5).unwrap();
    restore.carry_out(catalog).unwrap();
    let documented = Documented(catalog);
    let (head, _) = documented.head().unwrap();
    documented.model(&head, &Model::default()).unwrap();
    assert_eq!(documented.identity().unwrap().id, CLUSTER);
    head
}

#[test]
fn the_newest_cached_catalog_is_restored_with_a_higher_revision() {
    let catalog = empty();
    catalog.put_if("requests/old", "x".into(), None).unwrap();
    catalog
        .put_if(COORDINATOR_LEASE, "damaged".into(), None)
        .unwrap();
    let head = restored(
        &catalog,
        vec![cached_catalog(8), cached_catalog(9), cached_catalog(4)],
    );
    assert_eq!((head.revision, head.term), (10, 3 + TERMS));
    assert_eq!(head.roots, cached_catalog(9).head.roots);
    assert!(catalog.list("requests").unwrap().is_empty());
    assert_eq!(catalog.get(COORDINATOR_LEASE).unwrap(), None);
}

#[test]
fn an_intact_catalog_is_kept_and_an_old_copy_is_replaced() {
    let catalog = filled(&cached_catalog(9));
    let refused = Restore::plan(&catalog, vec![cached_catalog(9)], 5);
    assert!(matches!(
        refused,
        Err(RestoreError::Whole {
            found: 9,
            newest: 9
        })
    ));
    let old = filled(&cached_catalog(5));
    assert_eq!(restored(&old, vec![cached_catalog(9)]).revision, 10);
}

#[test]
fn a_catalog_with_any_damaged_document_is_restored() {
    for name in [HEAD, IDENTITY, "d/9-1"] {
        let catalog = filled(&cached_catalog(9));
        let (_, seen) = catalog.get(name).unwrap().unwrap();
        let damage = catalog.put_if(name, "damage".into(), Some(&seen));
        assert!(matches!(damage, Ok(WriteOutcome::Done(_))));
        assert_eq!(
            restored(&catalog, vec![cached_catalog(9)]).revision,
            10,
            "{name}"
        );
        let catalog = filled(&cached_catalog(9));
        catalog.remove(name).unwrap();
        assert_eq!(
            restored(&catalog, vec![cached_catalog(9)]).revision,
            10,
            "{name}"
        );
    }
    // The known revision is lower than that of the damaged catalog: the revision increases
    // nevertheless.
    let catalog = filled(&cached_catalog(12));
    catalog.remove("d/12-1").unwrap();
    assert_eq!(restored(&catalog, vec![cached_catalog(9)]).revision, 13);
}

#[test]
fn a_catalog_that_changes_during_a_restore_is_kept() {
    let catalog = filled(&cached_catalog(5));
    let restore = Restore::plan(&catalog, vec![cached_catalog(9)], 5).unwrap();
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
    let other = CachedCatalog {
        identity: Identity {
            id: ClusterId(8),
            ..cached_catalog(9).identity
        },
        head: Head {
            cluster: ClusterId(8),
            ..cached_catalog(9).head
        },
        ..cached_catalog(9)
    };
    let refused = Restore::plan(&empty(), vec![cached_catalog(5), other.clone()], 5);
    assert!(matches!(refused, Err(RestoreError::Several { .. })));
    let refused = Restore::plan(&filled(&cached_catalog(5)), vec![other], 5);
    assert!(matches!(refused, Err(RestoreError::OtherCluster { .. })));
    let catalog = filled(&cached_catalog(5));
    let (head, seen) = Documented(&catalog).head().unwrap();
    let newer = written(NEWEST_FORMAT + 1, &head).unwrap();
    catalog.put_if(HEAD, newer.into(), Some(&seen)).unwrap();
    let refused = Restore::plan(&catalog, vec![cached_catalog(9)], 5).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains(&format!("is of format {}", NEWEST_FORMAT + 1))
            && text.contains("use forebay"),
        "{text}"
    );
    assert!(matches!(
        Restore::plan(&empty(), Vec::new(), 5),
        Err(RestoreError::NoCache)
    ));
}
