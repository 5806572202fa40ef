//! `forebay cluster restore` and `repair-store`: commands for after the store, or a part of it, was
//! lost.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use forebay_cluster::repair_store::{Lack, RepairedStore, StoreRepair, needed};
use forebay_cluster::restore::{CachedCatalog, Restore};
use forebay_cluster::shell::SavedCatalog;
use forebay_engine::Store;
use forebay_load::progress::Unit;
use forebay_objects::Patience;
use serde_json::{Value, json};

use super::store_files::{self, RestoreTarget};
use crate::cluster_handle::is_no_cluster;
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;

#[derive(Debug, Args)]
struct Caches {
    /// The cache of a node (serve --cache); the node may be running. Give every cache reachable
    /// from this machine
    #[arg(long = "cache", value_name = "DIR", required = true)]
    caches: Vec<PathBuf>,
}

/// Rebuild the cluster's catalog, after it was lost or damaged, from the copies of the catalog in
/// the nodes' caches
///
/// The newest catalog in the caches becomes the catalog. Give the cache of the node that knows the
/// newest revision; `GET /v1/cluster` and the logs show it. Changes that no cache knows are lost.
/// Running nodes continue with the new catalog. A catalog that is intact and not older is left as
/// it is. Without --yes nothing is changed. With --json one object {cluster, from, known_revision,
/// found_revision, revision, term, tables, restored}, where tables lists {table, version}.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    caches: Caches,

    /// Write the catalog
    #[arg(long)]
    yes: bool,
}

/// Copy the table files that the store lost back into it, from the caches of nodes
///
/// These are the files of the serving versions and of the versions that a rollback would serve.
/// Each file is read and checked before it is sent. If a run was interrupted, run the command
/// again. Run it on each node's machine with that node's cache. The last run exits with 0. The
/// earlier runs exit with 1 and list what is still missing. With --json one object {files, bytes,
/// manifests, missing, problems}, where missing lists {table, version, manifest, files, bytes}.
#[derive(Debug, Args)]
pub struct RepairStoreArgs {
    #[command(flatten)]
    caches: Caches,
}

impl Caches {
    fn cached(&self, context: &Context) -> anyhow::Result<Vec<CachedCatalog>> {
        let cached = self.caches.iter().map(|cache| {
            let saved = SavedCatalog {
                disk: context.disk.clone(),
                dir: cache.join("cluster"),
            };
            saved.cached_catalog().map_err(anyhow::Error::msg)
        });
        cached.collect()
    }

    fn open(&self, context: &Context) -> anyhow::Result<Vec<Store>> {
        let caches = self.caches.iter();
        caches
            .map(|cache| context.open_directory(cache, None))
            .collect()
    }
}

pub fn restore(args: &RestoreArgs, context: &Context) -> anyhow::Result<Outcome> {
    let cached = args.caches.cached(context)?;
    store_files::check(context)?;
    let catalog = context.catalog(Patience::Short)?;
    let restore = Restore::plan(&*catalog, cached, context.random.next_u64())?;
    if args.yes {
        store_files::make(context)?;
        restore.carry_out(&*catalog)?;
    }
    context.print_done(Outcome::Done, &restored_object(&restore, args.yes), || {
        restored_text(&restore, args.yes)
    })?;
    if !args.yes {
        wrong!("nothing was changed: --yes writes this catalog");
    }
    Ok(Outcome::Done)
}

fn restored_object(restore: &Restore, is_done: bool) -> Value {
    let tables = restore.model.all_tables();
    let tables = tables.map(|(table, entry)| json!({"table": table, "version": entry.serving}));
    json!({
        "cluster": restore.identity.name,
        "from": restore.source,
        "known_revision": restore.known,
        "found_revision": restore.found,
        "revision": restore.head.revision,
        "term": restore.head.term,
        "tables": tables.collect::<Vec<Value>>(),
        "restored": is_done,
    })
}

fn restored_text(restore: &Restore, is_done: bool) -> String {
    let (name, known) = (&restore.identity.name, restore.known);
    let found = match restore.found {
        None => "no catalog there can be read".to_owned(),
        Some(found) if found > known => format!(
            "the one that is there is damaged, and of revision {found}: what was changed since {known} is lost"
        ),
        Some(found) => format!("the one that is there is of revision {found}"),
    };
    let is = if is_done { "is now" } else { "would be" };
    let mut text = format!(
        "the catalog of cluster {name} {is} that of revision {known}, from {}, as revision {} ({found})",
        restore.source, restore.head.revision
    );
    for (table, entry) in restore.model.all_tables() {
        let version = entry
            .serving
            .map_or("-".to_owned(), |version| version.to_string());
        text += &format!("\n  {table} serves version {version}");
    }
    text
}

pub fn repair_store(args: &RepairStoreArgs, context: &Context) -> anyhow::Result<Outcome> {
    let caches = args.caches.open(context)?;
    store_files::check(context)?;
    let cluster = match context.cluster() {
        Err(error) if is_no_cluster(&error) => bail!(
            "{} has no catalog: forebay cluster restore first",
            context.store_name()
        ),
        cluster => cluster?,
    };
    store_files::make(context)?;
    let (_, model) = cluster.client().model()?;
    let cached = args.caches.cached(context)?;
    let id = cluster.client().identity().id;
    if let Some(other) = cached.iter().find(|one| one.identity.id != id) {
        bail!("{} is of another cluster than the store", other.source);
    }
    let store = context.open_store()?;
    let into = RestoreTarget::new(&store, context)?;
    let drawing = Arc::new(context.progress());
    let advance = |bytes| drawing.advance(bytes);
    let work = StoreRepair {
        store: &store,
        caches: &caches,
        put: &|table, file, from, advance| into.put(table, file, from, advance),
        advance: &advance,
    };
    let places = needed(&model);
    let bytes = work.missing_bytes(&places)?;
    drawing.stage("reading and sending", Some(bytes), Unit::Bytes);
    let done = work.carry_out(&places);
    drop(drawing);
    let done = done?;
    context.print_done(Outcome::Done, &object(&done), || text(&done))?;
    match done.lacks.is_empty() {
        true => Ok(Outcome::Done),
        false => bail!(
            "the store lacks files still: run this with the caches of the other nodes, on their machines"
        ),
    }
}

fn object(done: &RepairedStore) -> Value {
    let missing = done.lacks.iter().map(|((table, version), lack)| {
        let Lack {
            manifest,
            files,
            bytes,
        } = lack;
        json!({
            "table": table,
            "version": version,
            "manifest": manifest,
            "files": files,
            "bytes": bytes,
        })
    });
    json!({
        "files": done.files,
        "bytes": done.bytes,
        "manifests": done.manifests,
        "missing": missing.collect::<Vec<Value>>(),
        "problems": done.problems,
    })
}

fn text(done: &RepairedStore) -> String {
    let mut text = format!(
        "{} put back, {}, and {}",
        human::counted(done.files as u64, "file"),
        human::bytes(done.bytes),
        human::counted(done.manifests as u64, "manifest")
    );
    for problem in &done.problems {
        text += &format!("\ndamaged in a cache: {problem}");
    }
    for ((table, version), lack) in &done.lacks {
        let what = match lack.manifest {
            true => "its manifest".to_owned(),
            false => format!(
                "{}, {}",
                human::counted(lack.files as u64, "file"),
                human::bytes(lack.bytes)
            ),
        };
        text += &format!("\nmissing of {table} version {version}: {what}");
    }
    if done.lacks.is_empty() {
        text += "\nall is there that serves, or that a rollback goes to";
    }
    text
}
