//! `forebay backup`: copies tables to another place.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use forebay_engine::backup::{BackupError, BackupProgress, BackupReport, NewBackup};
use forebay_engine::live::TableCheckpoint;
use forebay_engine::{StoreError, TableName};
use forebay_io::Throttle;
use forebay_load::progress::{Progress, Unit};
use serde_json::{Value, json};

use super::restore::listed;
use crate::backing::{cluster_checkpoint, place};
use crate::context::Context;
use crate::error_kind::{ErrorKind, words};
use crate::exit::Outcome;
use crate::printing::human;

/// Copy tables, batch and live, to a directory or bucket from which 'forebay restore' restores them
///
/// Of a batch table, the serving version is copied. A live table is copied as of one moment over
/// all partitions, while it takes writes. In a cluster its nodes make the copy, and writes to the
/// table wait for some milliseconds. What an earlier backup in that place has is not copied again.
/// Each file is read back before the backup is complete.
///
/// With --json one object {backup, to, tables, copied_bytes, reused_bytes, removed, unremoved,
/// damaged}, where tables lists {table, mode, version, records, bytes}.
#[derive(Debug, Args)]
pub struct Backup {
    /// The tables to copy [default: all that have a serving version or are live]
    #[arg(value_name = "TABLE")]
    pub tables: Vec<TableName>,

    /// The place: a directory that is not a store, or an s3://, gs:// or az:// URL
    #[arg(long, value_name = "URL")]
    pub to: String,

    /// How many backups of each table to keep in that place; older ones are removed after this
    /// backup is complete [default: all]
    #[arg(long, value_name = "N", value_parser = human::parse_count)]
    pub keep: Option<usize>,

    /// Copy at most this many bytes a second [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_rate)]
    pub rate: Option<u64>,
}

/// How often a live table of a cluster is copied before the backup fails.
const TRIES: usize = 3;

/// A table to copy.
enum TableCopy {
    Version(forebay_engine::Table, u64),
    Live,
    LiveOfCluster,
}

pub fn run(args: &Backup, context: &Context) -> anyhow::Result<Outcome> {
    let tables = chosen(args, context)?;
    if tables.is_empty() {
        bail!("the store has no table that serves anything: there is nothing to back up");
    }
    let place = place::open(&args.to, true, context)?;
    let mut backup = place.begin(&context.whole_store_name()?)?;
    let drawing = context.progress();
    let throttle = Throttle::new(args.rate, Arc::clone(&context.clock));
    for (name, copied) in &tables {
        let added = add(&mut backup, name, copied, (&*drawing, &throttle), context);
        match added {
            Err(error) if args.tables.is_empty() && ErrorKind::of(&error) == ErrorKind::Missing => {
                drawing.message(&format!(
                    "{name} was dropped meanwhile, and is not in the backup"
                ));
            }
            added => added.with_context(|| format!("table {name}: no backup was made"))?,
        }
    }
    let report = backup.finish(args.keep, cluster_status(context)?)?;
    drop(drawing);
    note(&report, &args.to, context);
    print(&report, &args.to, context)
}

/// Notes the backup in the store, so that the store knows the age of the last one.
fn note(report: &BackupReport, to: &str, context: &Context) {
    let noted = all_tables(context).and_then(|tables| {
        let store = context.open_store()?;
        Ok(store.note_backup(&report.document, to, &tables)?)
    });
    if let Err(error) = noted {
        let error = words(&error);
        tracing::warn!(
            error,
            "the backup is there, but the store does not note its time"
        );
    }
}

fn all_tables(context: &Context) -> anyhow::Result<Vec<TableName>> {
    let store = context.open_store()?;
    let mut names = store.tables()?;
    names.extend(store.live_tables()?);
    names.extend(context.live_tables_of_cluster()?);
    names.sort();
    Ok(names)
}

/// Returns what to copy of each table.
fn chosen(args: &Backup, context: &Context) -> anyhow::Result<Vec<(TableName, TableCopy)>> {
    let store = context.open_store()?;
    let mut names = args.tables.clone();
    let all = names.is_empty();
    if all {
        names = all_tables(context)?;
    }
    names.sort();
    names.dedup();
    let mut chosen = Vec::new();
    for name in names {
        let copied = if context.is_live_in_cluster(&name)? {
            TableCopy::LiveOfCluster
        } else if store.is_live(&name)? {
            TableCopy::Live
        } else {
            let table = store.table(&name)?;
            match table.serving() {
                Err(StoreError::NothingServes { .. }) if all => continue,
                version => TableCopy::Version(table, version?),
            }
        };
        chosen.push((name, copied));
    }
    Ok(chosen)
}

fn add(
    backup: &mut NewBackup,
    name: &TableName,
    copied: &TableCopy,
    (drawing, throttle): (&(dyn Progress + Send), &Throttle),
    context: &Context,
) -> anyhow::Result<()> {
    let stage = |bytes| drawing.stage(&format!("copying {name}"), Some(bytes), Unit::Bytes);
    let mut advance = |bytes| match bytes {
        BackupProgress::Copied(bytes) => {
            throttle.take(bytes);
            drawing.advance(bytes);
        }
        BackupProgress::There(bytes) => drawing.advance(bytes),
    };
    let mut add_live = |table: TableCheckpoint| {
        stage(table.file_bytes());
        backup.add_live(&table, &mut advance)
    };
    match copied {
        TableCopy::Live => {
            let store = context.open_store()?;
            let checkpoint = store.checkpoint(name, &context.live_budget())?;
            add_live(checkpoint.table()?)?;
        }
        TableCopy::LiveOfCluster => {
            // A node may die while its files are copied; then another node leads.
            let mut left = TRIES;
            loop {
                left -= 1;
                match add_live(cluster_checkpoint::take(name, context)?) {
                    Err(error) if left > 0 && !matches!(error, BackupError::Busy { .. }) => {
                        drawing.message(&format!("{name} is copied again: {error}"));
                    }
                    added => break added?,
                }
            }
        }
        TableCopy::Version(table, version) => {
            stage(table.manifest(*version)?.file_bytes());
            backup.add_version(table, *version, &mut advance)?;
        }
    }
    Ok(())
}

/// Returns the cluster's nodes, for people who rebuild the cluster.
fn cluster_status(context: &Context) -> anyhow::Result<Option<Value>> {
    if !context.is_clustered()? {
        return Ok(None);
    }
    let status = context.cluster()?.client().status()?;
    Ok(Some(serde_json::to_value(status)?))
}

fn print(report: &BackupReport, to: &str, context: &Context) -> anyhow::Result<Outcome> {
    let document = &report.document;
    let object = json!({
        "backup": document.name,
        "to": to,
        "tables": listed(&document.tables),
        "copied_bytes": report.copied_bytes,
        "reused_bytes": report.reused_bytes,
        "removed": report.removed,
        "unremoved": report.unremoved,
        "damaged": report.damaged,
    });
    if !report.damaged.is_empty() {
        context.output.announce(&format!(
            "backups that cannot be read: {}. No file is removed while they are there: remove backups/NAME.json of each",
            report.damaged.join(", ")
        ));
    }
    for problem in &report.unremoved {
        context.output.announce(&format!(
            "what no backup needs any more could not be removed: {problem}"
        ));
    }
    context.print_done(Outcome::Done, &object, || {
        let tables = human::counted(document.tables.len() as u64, "table");
        let (copied, reused) = (
            human::bytes(report.copied_bytes),
            human::bytes(report.reused_bytes),
        );
        let removed = match &report.removed[..] {
            [] => String::new(),
            removed => format!("; removed: {}", removed.join(", ")),
        };
        format!(
            "backup {} of {tables} is in {to}: {copied} copied, {reused} were there{removed}",
            document.name
        )
    })
}
