//! Checks that a plan still fits the cluster, and leaves live tables safe.

use forebay_engine::TableName;

use crate::ids::NodeId;
use crate::model::{LayoutName, Model, MoveBatch, live_replicas};

/// Checks that a batch fits the cluster.
pub fn fits(model: &Model, batch: &MoveBatch) -> Result<(), String> {
    let changed = |what: &dyn std::fmt::Display| {
        Err(format!(
            "{what} is not what it was when the plan was made: make a new one"
        ))
    };
    for change in &batch.lists {
        let Some(layout) = model.layouts.get(&change.layout) else {
            return changed(&shown(&change.layout));
        };
        let is_same = layout.within(&change.bounds).all(|range| {
            range.list == change.old && range.next.is_none() && range.before.is_none()
        });
        if !is_same {
            return changed(&shown(&change.layout));
        }
        if let Some(gone) = change.new.iter().find(|node| model.node(**node).is_none()) {
            return Err(format!(
                "the plan names node {gone}, which was removed from the cluster"
            ));
        }
    }
    for table in &batch.own {
        let entry = model.table(table);
        if entry.is_none_or(|entry| entry.live.is_some()) {
            return changed(&format!("table {table}"));
        }
    }
    for change in &batch.replicas {
        let entry = model.table(&change.table);
        if entry.is_none_or(|entry| entry.replicas != change.from) {
            return changed(&format!("table {}", change.table));
        }
    }
    Ok(())
}

/// Checks that all batches of a plan fit. A later batch may use layouts that an earlier one
/// creates.
pub fn fits_all(model: &Model, batches: &[MoveBatch]) -> Result<(), String> {
    let mut own = None;
    for batch in batches {
        if !batch.own.is_empty() {
            let model = own.get_or_insert_with(|| model.clone());
            let own = batch.own.iter();
            own.for_each(|table| model.give_own_layout(table));
        }
        fits(own.as_ref().unwrap_or(model), batch)?;
    }
    Ok(())
}

fn shown(layout: &LayoutName) -> String {
    match layout {
        LayoutName::Main => "the layout of hashed tables".to_owned(),
        LayoutName::Table(table) => format!("the layout of table {table}"),
    }
}

/// Checks that no partition of a live table gets fewer nodes than the table's replicas. Of so few
/// nodes a majority may be all. `before`: the cluster as it is; `after`: the cluster after the
/// plan.
pub fn check_live_lists(before: &Model, after: &Model) -> Result<(), String> {
    for (table, entry) in after.live_tables() {
        let replicas = live_replicas(entry.replicas)?;
        let ranges = after.layout_of(entry).into_iter();
        let least = ranges.flat_map(|layout| layout.ranges().map(|range| range.list.len()));
        let least = least.min().unwrap_or(0);
        if least < replicas {
            return Err(format!(
                "the plan leaves partitions of live table {table} with {least} nodes, and it is to have {replicas} \
                 replicas: add nodes first"
            ));
        }
        check_reach(before, after, table)?;
    }
    Ok(())
}

/// Checks that each partition that moves is to be on at least one node that is up.
fn check_reach(before: &Model, after: &Model, table: &TableName) -> Result<(), String> {
    let is_up = |node: &NodeId| before.node(*node).is_some_and(|entry| entry.is_up());
    let stood = before.desired_groups(table);
    for (group, wanted) in after.desired_groups(table) {
        let is_moved = stood
            .iter()
            .any(|(known, list)| known.group == group.group && *list != wanted);
        if is_moved && !wanted.iter().any(is_up) {
            let down: Vec<String> = wanted.iter().map(|node| before.node_name(*node)).collect();
            return Err(format!(
                "the plan leaves partition {} of live table {table} to nodes that are down ({}), \
                 which cannot fetch it: start them, or put other nodes in their place first \
                 (forebay cluster replace)",
                group.partition,
                down.join(", ")
            ));
        }
    }
    Ok(())
}
