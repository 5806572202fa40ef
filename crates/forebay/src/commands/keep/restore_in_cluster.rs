//! Restores a live table of a backup into a cluster.
//!
//! The table is created with the partitions that it had, and its rows are added as by a load.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use forebay_cluster::REPLICAS;
use forebay_cluster::model::GroupEntry;
use forebay_engine::live::{CheckpointRun, Load, TableCheckpoint};
use forebay_engine::{PartitionId, RunRef, TableName};
use forebay_load::progress::Unit;

use crate::backing::scratch::ScratchDir;
use crate::cluster_handle::Drawing;
use crate::commands::live::create_in_cluster;
use crate::commands::live::load_in_cluster::{LoadInCluster, LoadPlan};
use crate::context::Context;

/// Creates the table and adds its rows. A table of that name is an error. A restore that fails
/// later leaves an empty table, and says so.
pub fn restore(checkpoint: &TableCheckpoint, context: &Context) -> anyhow::Result<()> {
    let table = checkpoint.table();
    if context.is_live_in_cluster(table)? {
        bail!(
            "live table {table} is there already: drop it first (forebay drop {table}), or restore into another store"
        );
    }
    let scratch = ScratchDir::make(context)?;
    let merged = merge(checkpoint, &scratch, context)?;
    let ranges = checkpoint.ranges();
    let lowers = ranges.iter().map(|range| range.bounds.lower.clone());
    create_in_cluster::make(
        (table, checkpoint.options(), REPLICAS),
        lowers.collect(),
        context,
    )?;
    let added = add(&merged, context);
    added.with_context(|| {
        format!(
            "table {table} is made, but empty: drop it, and restore it again (forebay drop {table})"
        )
    })
}

/// Merges the table to at most one run for each partition, without deleted keys.
fn merge(
    checkpoint: &TableCheckpoint,
    scratch: &ScratchDir,
    context: &Context,
) -> anyhow::Result<TableCheckpoint> {
    let drawing = context.progress();
    drawing.stage(
        &format!("copying {}", checkpoint.table()),
        Some(checkpoint.file_bytes()),
        Unit::Bytes,
    );
    let (disk, clock, random) = (&context.disk, &context.clock, &context.random);
    let parts = (Arc::clone(disk), Arc::clone(clock), Arc::clone(random));
    checkpoint.copy_to(parts, &scratch.store(), &mut |bytes| drawing.advance(bytes))?;
    drawing.stage(&format!("merging {}", checkpoint.table()), None, Unit::Rows);
    let store = context.open_directory(&scratch.store(), None)?;
    let name = checkpoint.table();
    let open = store.live_table(name, &context.live_budget())?;
    open.compact()?;
    drop(open);
    Ok(TableCheckpoint::of_store(&store, name)?)
}

/// Has the cluster add the runs.
fn add(merged: &TableCheckpoint, context: &Context) -> anyhow::Result<()> {
    let table = merged.table();
    let drawing: Drawing = Drawing::new(context.progress());
    let plan = LoadPlan::Nothing;
    let found = LoadInCluster::find(table, (None, &plan), context, &drawing)?;
    let found = found.with_context(|| format!("table {table} was dropped meanwhile"))?;
    let store = context.open_to_merge(&drawing)?;
    let (load, groups) = found.begin(table, (&store, context, &drawing))?;
    let mut runs = Vec::new();
    drawing.stage(
        &format!("staging {table}"),
        Some(merged.file_bytes()),
        Unit::Bytes,
    );
    for run in merged.runs() {
        let partition = partition_of(&run, &groups, table)?;
        let staged = stage(merged, &run, &load, partition, &mut |bytes| {
            drawing.advance(bytes)
        })?;
        runs.push((partition, staged));
    }
    found.add_runs(table, load, &runs, &groups)?;
    context.stop_drawing(drawing);
    Ok(())
}

fn partition_of(
    run: &CheckpointRun,
    groups: &[GroupEntry],
    table: &TableName,
) -> anyhow::Result<PartitionId> {
    let group = groups.iter().find(|group| group.bounds == run.bounds);
    let group =
        group.with_context(|| format!("somebody split a partition of {table} meanwhile"))?;
    Ok(group.partition)
}

fn stage(
    merged: &TableCheckpoint,
    run: &CheckpointRun,
    load: &Load,
    partition: PartitionId,
    advance: &mut dyn FnMut(u64),
) -> anyhow::Result<RunRef> {
    let new = load.new_run(partition);
    merged.copy_run(run, load, &new, advance)?;
    Ok(RunRef {
        id: new.id,
        summary: run.summary,
        operations: None,
    })
}
