//! `forebay cluster create`: creates a cluster over a store.

use anyhow::bail;
use clap::Args;
use forebay_cluster::catalog::{CatalogError, Documented};
use forebay_cluster::formats::has_timing;
use forebay_cluster::model::{FORMATS, Identity, NEWEST_FORMAT};
use forebay_cluster::{ClusterId, ClusterName};
use forebay_engine::{Store, TableName};
use forebay_objects::Patience;
use serde_json::json;

use crate::cluster_handle::is_in_cluster;
use crate::context::Context;
use crate::exit::Outcome;

/// Create a cluster over --store. The store is created if it does not exist
///
/// Afterwards the store belongs to the cluster. The cluster's catalog, which is in the store, says
/// which version of a table serves. Older programs and servers without --cluster refuse the store.
/// With --json one object {cluster, id, tables}. If the store had tables, tables lists the ones to
/// swap in.
#[derive(Debug, Args)]
pub struct CreateCluster {
    /// The cluster's name for people: 1 to 64 of A-Z a-z 0-9 _ . -
    #[arg(long, value_name = "NAME", default_value = "forebay")]
    name: ClusterName,

    /// Use the store even if it has tables. They serve in the cluster once they are swapped in
    #[arg(long)]
    adopt: bool,

    /// The format of the cluster's catalog: an older one while some nodes run an older program.
    /// `cluster upgrade` raises it later
    #[arg(long, value_name = "N", default_value_t = NEWEST_FORMAT, value_parser = clap::value_parser!(u64).range(FORMATS[0]..=FORMATS[1]))]
    format: u64,

    #[command(flatten)]
    timing: super::set::NodeTimeout,
}

pub fn run(args: &CreateCluster, context: &Context) -> anyhow::Result<Outcome> {
    let store = match open_or_make(context) {
        Err(error) if is_in_cluster(&error) => return Err(exists(context)),
        store => store?,
    };
    let live = store.live_tables()?;
    if let Some(table) = live.first() {
        bail!(
            "table {table} is a live table that one server writes, and those of a cluster are made in it: export and \
             drop it, or give the cluster a store of its own"
        );
    }
    let tables = serving(&store)?;
    if !tables.is_empty() && !args.adopt {
        bail!(
            "the store has tables already ({}): --adopt takes it for the cluster all the same; its tables serve \
             there once they are swapped in",
            human(&tables)
        );
    }
    let timing = args.timing.timing()?;
    if !timing.is_default() {
        has_timing(args.format).map_err(anyhow::Error::msg)?;
    }
    let catalog = context.catalog(Patience::Short)?;
    let catalog = Documented(&*catalog);
    let identity = Identity {
        forebay_cluster: args.format,
        id: ClusterId(context.random.next_u64()),
        name: args.name.to_string(),
        created_unix_ms: context.clock.unix_ms(),
    };
    let identity = match catalog.create(&identity, timing) {
        // An earlier try ended before the cluster owned the store.
        Err(CatalogError::Exists(_)) => catalog.identity()?,
        identity => identity?,
    };
    store.give_to_cluster()?;
    let swaps: Vec<String> = tables
        .iter()
        .map(|(table, version)| format!("{table}@{version}"))
        .collect();
    let object = json!({"cluster": identity.name, "id": identity.id.to_string(), "tables": swaps});
    context.print_done(Outcome::Done, &object, || {
        let mut text = format!(
            "cluster {} is made; start its nodes: forebay serve --cluster --store {} --cache DIR --node NAME \
             --zone ZONE --peer ADDRESS:PORT",
            identity.name,
            context.store_name()
        );
        if !swaps.is_empty() {
            text += &format!("\nthen let its tables serve: forebay swap {}", swaps.join(" "));
        }
        text
    })
}

fn open_or_make(context: &Context) -> anyhow::Result<Store> {
    match context.is_remote() {
        true => context.make_remote(),
        false => context.open_or_create_directory(&context.store_path()?),
    }
}

fn exists(context: &Context) -> anyhow::Error {
    let cluster = context
        .catalog(Patience::Short)
        .and_then(|catalog| Ok(Documented(&*catalog).identity()?));
    match cluster {
        Ok(identity) => anyhow::anyhow!("the store belongs to cluster {} already", identity.name),
        Err(error) => error.context("the store belongs to a cluster already"),
    }
}

fn serving(store: &Store) -> anyhow::Result<Vec<(TableName, u64)>> {
    let mut tables = Vec::new();
    for name in store.tables()? {
        if let Some(version) = store.table(&name)?.pointer()?.serving {
            tables.push((name, version));
        }
    }
    Ok(tables)
}

fn human(tables: &[(TableName, u64)]) -> String {
    let names: Vec<String> = tables
        .iter()
        .take(5)
        .map(|(name, _)| name.to_string())
        .collect();
    let more = if tables.len() > 5 { ", ..." } else { "" };
    format!("{}{more}", names.join(", "))
}
