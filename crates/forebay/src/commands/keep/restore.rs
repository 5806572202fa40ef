//! `forebay restore`: restores tables from a backup.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use clap::Args;
use forebay_cluster::REPLICAS;
use forebay_cluster::client::RolloutDraft;
use forebay_engine::TableName;
use forebay_engine::backup::{Backup, BackupError, BackupPlace, Documents, TableSummary};
use forebay_load::progress::Unit;
use forebay_run::RunError;
use serde_json::{Value, json};

use super::restore_in_cluster;
use crate::backing::place;
use crate::cluster_handle::{Drawing, is_no_store};
use crate::commands::creating::StoreCreation;
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;

/// Restore tables from a backup into a store: of one server or of a cluster, new or old
///
/// A batch table is restored as the version that was backed up, verified, and then serves. The
/// version that served before is kept, so that 'forebay rollback' can return to it. A live table is
/// restored as of the moment of its backup; no table of its name may exist. In a cluster, the table
/// is created and its rows are added.
///
/// With --json one object {backup, from, tables}, where tables lists {table, mode, version,
/// records, bytes}; with --list one {backups}, which lists {backup, taken_unix_ms, source, tables}.
#[derive(Debug, Args)]
pub struct Restore {
    /// The tables [default: all in the backup]
    #[arg(value_name = "TABLE")]
    pub tables: Vec<TableName>,

    /// The place of the backups, as given to 'forebay backup --to'
    #[arg(long, value_name = "URL")]
    pub from: String,

    /// Which backup [default: the newest]
    #[arg(long, value_name = "NAME")]
    pub backup: Option<String>,

    /// List the backups, and restore nothing
    #[arg(long, conflicts_with_all = ["tables", "backup", "no_swap", "check"])]
    pub list: bool,

    /// Read the backup's files in their place to verify them, and restore nothing
    #[arg(long, conflicts_with = "no_swap")]
    pub check: bool,

    /// Restore versions of batch tables, but leave the serving ones in place
    #[arg(long)]
    pub no_swap: bool,
}

pub fn run(args: &Restore, context: &Context) -> anyhow::Result<Outcome> {
    let place = place::open(&args.from, false, context)?;
    if args.list {
        return list(&place, context);
    }
    let backup = place.backup(args.backup.as_deref())?;
    let tables = chosen(args, &backup)?;
    if args.check {
        return check(args, &backup, &tables, context);
    }
    refuse_what_is_there(args, &backup, &tables, context)?;
    let is_clustered = context.is_clustered()?;
    let mut versions = BTreeMap::new();
    for (name, table) in &tables {
        let restored = match table.version {
            Some(_) => fetch_version(&backup, name, context).map(|version| {
                versions.insert(name.clone(), version);
            }),
            None if is_clustered => restore_in_cluster::restore(&backup.live(name)?, context),
            None => fetch_live(&backup, name, context),
        };
        restored
            .map_err(|error| damage_behind(error, &backup, name))
            .with_context(|| format!("table {name} was not restored"))?;
    }
    if !args.no_swap {
        swap(&versions, context)?;
    }
    print(args, &backup, &tables, context)
}

/// Returns why a table was not restored. If its copy could not be read back, the error names the
/// damaged file of the backup, if there is one.
fn damage_behind(error: anyhow::Error, backup: &Backup, table: &TableName) -> anyhow::Error {
    use std::io::ErrorKind::{InvalidInput, NotFound};
    let is_lost = |error: &std::io::Error| matches!(error.kind(), InvalidInput | NotFound);
    let is_unreadable = error
        .chain()
        .any(|cause| cause.is::<RunError>() || cause.downcast_ref().is_some_and(is_lost))
        || matches!(error.downcast_ref(), Some(BackupError::Restored { .. }));
    if !is_unreadable {
        return error;
    }
    match backup.check(table, &mut |_| {}) {
        Err(damage) => damage.into(),
        Ok(()) => error,
    }
}

fn chosen(args: &Restore, backup: &Backup) -> anyhow::Result<BTreeMap<TableName, TableSummary>> {
    let mut all = backup.document().tables.clone();
    if !args.tables.is_empty() {
        for name in &args.tables {
            backup.check_has(name)?;
        }
        all.retain(|name, _| args.tables.contains(name));
    }
    Ok(all)
}

/// Refuses before anything is copied what could not be restored: unreadable documents of the
/// backup, and tables that exist already.
fn refuse_what_is_there(
    args: &Restore,
    backup: &Backup,
    tables: &BTreeMap<TableName, TableSummary>,
    context: &Context,
) -> anyhow::Result<()> {
    // The command that restores the tables beside these.
    let for_others = |these: &[&TableName]| {
        let others = tables.keys().filter(|name| !these.contains(name));
        let others: Vec<&str> = others.map(TableName::as_str).collect();
        (!others.is_empty()).then(|| {
            let backup = &backup.document().name;
            let names = others.join(" ");
            format!(
                "forebay restore {names} --from {} --backup {backup}",
                args.from
            )
        })
    };
    for name in tables.keys() {
        let checked = backup.check_document(name);
        checked.with_context(|| {
            let others = for_others(&[name]);
            let rest = others.map_or_else(String::new, |it| format!("; without this table: {it}"));
            format!("nothing was restored{rest}")
        })?;
    }
    let live = tables.iter().filter(|(_, table)| table.version.is_none());
    let live: Vec<&TableName> = live.map(|(name, _)| name).collect();
    refuse_without_nodes(&live, for_others(&live), context)?;
    let store = match context.open_store() {
        Err(error) if is_no_store(&error) => return Ok(()),
        store => store?,
    };
    let mut there = Vec::new();
    for (name, table) in tables {
        let is_live = context.is_live_in_cluster(name)? || store.is_live(name)?;
        match table.version {
            Some(_) if is_live => there.push(name),
            Some(_) => backup.check_version(name, &store)?,
            None if is_live || store.table(name).is_ok() => there.push(name),
            None => {}
        }
    }
    if there.is_empty() {
        return Ok(());
    }
    let rest = for_others(&there).map_or_else(String::new, |it| format!(". The others: {it}"));
    let there: Vec<&str> = there.into_iter().map(TableName::as_str).collect();
    bail!(
        "nothing was restored: tables of these names are there already, live ones or of the other kind: {}. Drop them \
         first (a restore into a cluster that was killed leaves an empty table), or restore into another store{rest}",
        there.join(", ")
    )
}

/// Refuses live tables of a cluster with fewer nodes than a live table has replicas.
fn refuse_without_nodes(
    live: &[&TableName],
    for_others: Option<String>,
    context: &Context,
) -> anyhow::Result<()> {
    if live.is_empty() || !context.is_clustered()? {
        return Ok(());
    }
    let (_, model) = context.cluster()?.client().model()?;
    let drained = &model.work.drained;
    let up = model
        .all_nodes()
        .filter(|node| node.is_up() && !drained.contains(&node.id));
    let up = up.count();
    if up >= REPLICAS {
        return Ok(());
    }
    let rest = for_others.map_or_else(String::new, |it| format!(". The batch tables: {it}"));
    bail!(
        "nothing was restored: live tables are restored with {REPLICAS} replicas, and only {} can have them now: start \
         more nodes, or add those that were drained (forebay cluster add){rest}",
        human::counted(up as u64, "node")
    )
}

/// Reads all files of the tables in the backup's place.
fn check(
    args: &Restore,
    backup: &Backup,
    tables: &BTreeMap<TableName, TableSummary>,
    context: &Context,
) -> anyhow::Result<Outcome> {
    let drawing = context.progress();
    let bytes = tables.values().map(|table| table.file_bytes).sum();
    drawing.stage("reading back", Some(bytes), Unit::Bytes);
    for name in tables.keys() {
        let checked = backup.check(name, &mut |bytes| drawing.advance(bytes));
        checked.with_context(|| format!("backup {} is damaged", backup.document().name))?;
    }
    drop(drawing);
    let object = json!({
        "backup": backup.document().name,
        "from": args.from,
        "tables": listed(tables),
    });
    context.print(&object, || {
        let tables = human::counted(tables.len() as u64, "table");
        let bytes = human::bytes(bytes);
        format!(
            "backup {} is sound: {tables}, {bytes}",
            backup.document().name
        )
    })?;
    Ok(Outcome::Done)
}

fn fetch_version(backup: &Backup, name: &TableName, context: &Context) -> anyhow::Result<u64> {
    let drawing: Drawing = Drawing::new(context.progress());
    let (store, _) = context.open_for_push(&drawing, StoreCreation::Always)?;
    let bytes = backup.document().tables[name].file_bytes;
    drawing.stage(&format!("copying {name}"), Some(bytes), Unit::Bytes);
    let restored = backup.restore_version(name, &store, &mut |bytes| drawing.advance(bytes))?;
    Ok(restored.1)
}

fn fetch_live(backup: &Backup, name: &TableName, context: &Context) -> anyhow::Result<()> {
    let (store, _) = context.open_for_live(StoreCreation::Always)?;
    let table = backup.live(name)?;
    let drawing = context.progress();
    drawing.stage(
        &format!("copying {name}"),
        Some(table.file_bytes()),
        Unit::Bytes,
    );
    table.copy_into(&store, &mut |bytes| drawing.advance(bytes))?;
    Ok(())
}

/// Swaps the restored versions in; in a cluster all at one moment.
fn swap(versions: &BTreeMap<TableName, u64>, context: &Context) -> anyhow::Result<()> {
    if versions.is_empty() {
        return Ok(());
    }
    let drawing: Drawing = Drawing::new(context.progress());
    let goal = RolloutDraft {
        force: true,
        keep: usize::MAX,
        ..RolloutDraft::default()
    };
    if let Some(cluster) = context.cluster_if_any(goal, &drawing)? {
        cluster.swap(versions)?;
        context.stop_drawing(drawing);
        return Ok(());
    }
    for (name, version) in versions {
        context.open_table(name)?.swap(*version)?;
    }
    Ok(())
}

fn print(
    args: &Restore,
    backup: &Backup,
    tables: &BTreeMap<TableName, TableSummary>,
    context: &Context,
) -> anyhow::Result<Outcome> {
    let document = backup.document();
    let object = json!({
        "backup": document.name,
        "from": args.from,
        "tables": listed(tables),
    });
    context.print_done(Outcome::Done, &object, || {
        let lines = tables.iter().map(|(name, table)| {
            let records = human::counted(table.records, "record");
            match table.version {
                Some(version) if args.no_swap => {
                    format!("{name} version {version} is there: {records}; 'forebay swap {name} {version}' lets it serve\n")
                }
                Some(version) => format!("{name} serves version {version}: {records}\n"),
                None => format!("live table {name} is there: {records}\n"),
            }
        });
        lines.collect::<String>() + &format!("restored from backup {}", document.name)
    })
}

/// Returns the tables of a backup, as commands print them.
pub fn listed(tables: &BTreeMap<TableName, TableSummary>) -> Vec<Value> {
    let tables = tables.iter().map(|(name, table)| {
        json!({
            "table": name,
            "mode": if table.version.is_some() { "batch" } else { "live" },
            "version": table.version,
            "records": table.records,
            "bytes": table.file_bytes,
        })
    });
    tables.collect()
}

fn list(place: &BackupPlace, context: &Context) -> anyhow::Result<Outcome> {
    let Documents { documents, damaged } = place.documents()?;
    for (_, error) in &damaged {
        context.output.announce(&error.to_string());
    }
    let backups = documents.iter().map(|document| {
        json!({
            "backup": document.name,
            "taken_unix_ms": document.taken_unix_ms,
            "source": document.source,
            "tables": listed(&document.tables),
        })
    });
    let object = json!({ "backups": backups.collect::<Vec<_>>() });
    context.print(&object, || {
        let lines = documents.iter().map(|document| {
            let bytes = document.tables.values().map(|table| table.file_bytes).sum();
            let tables: Vec<&str> = document.tables.keys().map(TableName::as_str).collect();
            format!(
                "{}  {}  of {}: {}\n",
                document.name,
                human::bytes(bytes),
                document.source,
                tables.join(", ")
            )
        });
        match documents.is_empty() {
            true => "no backup is there yet".to_owned(),
            false => lines.collect(),
        }
    })?;
    Ok(Outcome::Done)
}
