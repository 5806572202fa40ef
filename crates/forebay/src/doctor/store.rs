//! Checks of the store that --store names.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_engine::Store;
use forebay_io::{Disk, replace_file};
use forebay_objects::{Patience, StoreMemory};

use super::Finding;
use crate::context::Context;
use crate::error_kind::words;
use crate::printing::human;

/// The file that is written and removed to check that writing works.
const PROBE: &str = "doctor.probe";

/// Checks whether the store exists, and of which kind it is.
pub fn opened(context: &Context) -> (Finding, Option<Store>) {
    const CHECK: &str = "store";
    let kind = match context.is_clustered() {
        Ok(true) => "of a cluster",
        _ => "of single servers",
    };
    match context.open_store() {
        Ok(store) => {
            let found = format!("{} is a store {kind}", context.store_name());
            (Finding::ok(CHECK, found), Some(store))
        }
        Err(error) => (Finding::failed(CHECK, words(&error)), None),
    }
}

/// Checks whether the manifests of all tables can be read, and no file of a serving version is
/// missing or truncated.
pub fn tables(store: &Store) -> Vec<Finding> {
    const CHECK: &str = "tables";
    let names = match store.tables() {
        Ok(names) => names,
        Err(error) => return vec![Finding::failed(CHECK, error.to_string())],
    };
    let mut findings = Vec::new();
    for name in &names {
        let serving = store.table(name).and_then(|table| {
            let serving = table.pointer()?.serving;
            serving
                .map(|version| table.check_complete(version))
                .transpose()
        });
        if let Err(error) = serving {
            findings.push(Finding::failed(CHECK, format!("{name}: {error}")));
        }
    }
    let live = match store.live_tables() {
        Ok(live) => live,
        Err(error) => return vec![Finding::failed(CHECK, error.to_string())],
    };
    for name in &live {
        if let Err(error) = store.live_info(name) {
            findings.push(Finding::failed(CHECK, format!("{name}: {error}")));
        }
    }
    if findings.is_empty() {
        let batch = human::counted(names.len() as u64, "batch table");
        let live = human::counted(live.len() as u64, "live table");
        let found = format!(
            "{batch} and {live} in the store: manifests can be read, no file is missing or cut short"
        );
        findings.push(Finding::ok(CHECK, found));
    }
    findings
}

/// Checks whether files can be written, replaced and removed.
pub fn writable(store: &Store) -> Finding {
    const CHECK: &str = "writing";
    let (disk, path) = (&**store.disk(), store.root().join(PROBE));
    let written = replace_file(disk, &path, b"forebay doctor\n").and_then(|()| {
        let read = disk.read(&path)?;
        disk.remove(&path)?;
        match read == b"forebay doctor\n" {
            true => Ok(()),
            false => Err(io::Error::other(
                "what was read back is not what was written",
            )),
        }
    });
    match written {
        Ok(()) => Finding::ok(CHECK, "this user may write to the store"),
        Err(error) => Finding::failed(
            CHECK,
            format!(
                "{}: {error}: pushes and swaps by this user fail",
                path.display()
            ),
        ),
    }
}

/// Checks whether an object store refuses to replace an object that another process has replaced
/// meanwhile. Locks and pointers depend on it.
pub fn conditional_writes(context: &Context) -> Finding {
    const CHECK: &str = "conditional writes";
    match replaced_twice(context) {
        Ok(true) => Finding::failed(
            CHECK,
            "the object store replaced an object that had changed: two pushes, or two coordinators, would not see each \
             other. Use one that heeds If-Match and If-None-Match",
        ),
        Ok(false) => Finding::ok(CHECK, "the object store heeds them"),
        Err(error) => Finding::failed(CHECK, words(&error)),
    }
}

/// Replaces an object as one process, then as another, and again as the first, which has not seen
/// the second write. Returns whether the last write succeeded.
fn replaced_twice(context: &Context) -> anyhow::Result<bool> {
    let (first, path) = probe(context)?;
    let (second, _) = probe(context)?;
    replace_file(&*first, &path, b"1")?;
    second.read(&path)?;
    replace_file(&*second, &path, b"2")?;
    let came_through = replace_file(&*first, &path, b"3").is_ok();
    let (third, _) = probe(context)?;
    third.read(&path)?;
    third.remove(&path)?;
    Ok(came_through)
}

/// Returns a separate view of the store, which shares no state with others.
fn probe(context: &Context) -> anyhow::Result<(Arc<dyn Disk>, PathBuf)> {
    let mut on = context.remote_parts(Patience::Short, None);
    on.memory = StoreMemory::default();
    let (disk, root) = forebay_objects::open_disk(context.remote_url()?, &on)?;
    Ok((disk, Path::new(&root).join(PROBE)))
}
