//! `forebay checkpoint`: copies one moment of a live table to a store of its own.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use forebay_engine::TableName;
use forebay_engine::live::{CheckpointCopy, LiveError};
use forebay_load::progress::Unit;
use serde_json::json;

use crate::backing::cluster_checkpoint;
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;

/// Copy a live table as it is now into another store, while it serves and takes writes
///
/// On the same file system the copy takes no space at first, because runs are linked. The other
/// store serves like any other. For backups use forebay backup. With --json one object {table,
/// store, runs, records, bytes, linked_bytes}.
#[derive(Debug, Args)]
pub struct Checkpoint {
    pub table: TableName,
    /// The store to copy the table into; created if it does not exist
    pub dir: PathBuf,
}

pub fn run(args: &Checkpoint, context: &Context) -> anyhow::Result<Outcome> {
    let (store, table) = (context.open_store()?, &args.table);
    if context.is_live_in_cluster(table)? {
        let taken = cluster_checkpoint::take(table, context)?;
        let drawing = context.progress();
        drawing.stage("copying", Some(taken.file_bytes()), Unit::Bytes);
        let parts = (&context.disk, &context.clock, &context.random);
        let parts = (
            Arc::clone(parts.0),
            Arc::clone(parts.1),
            Arc::clone(parts.2),
        );
        let copied = taken.copy_to(parts, &args.dir, &mut |bytes| drawing.advance(bytes))?;
        drop(drawing);
        return print(args, copied, context);
    }
    if !store.is_live(table)? && store.table(table).is_ok() {
        bail!(
            "table {table} is a batch table, whose versions are copied by 'forebay push' and 'forebay pull': \
             checkpoint is for live tables"
        );
    }
    if !store.is_live(table)? {
        let table = table.clone();
        return Err(LiveError::NoTable { table }.into());
    }
    let drawing = context.progress();
    let checkpoint = store.checkpoint(table, &context.live_budget())?;
    drawing.stage("copying", None, Unit::Bytes);
    let copied = checkpoint.copy_to(&args.dir, &mut |bytes| drawing.advance(bytes))?;
    drop(drawing);
    print(args, copied, context)
}

fn print(args: &Checkpoint, copied: CheckpointCopy, context: &Context) -> anyhow::Result<Outcome> {
    let (table, dir) = (&args.table, args.dir.display());
    let object = json!({
        "table": table,
        "store": dir.to_string(),
        "runs": copied.runs,
        "records": copied.records,
        "bytes": copied.file_bytes,
        "linked_bytes": copied.linked_bytes,
    });
    context.print_done(Outcome::Done, &object, || {
        let records = human::counted(copied.records, "record");
        let (bytes, linked) = (
            human::bytes(copied.file_bytes),
            human::bytes(copied.linked_bytes),
        );
        format!(
            "{table} as it is now is in {dir}: {records}, {bytes}, of which {linked} are linked"
        )
    })
}
