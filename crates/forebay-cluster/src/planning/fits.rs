//! Checks that a plan still fits the cluster.

use crate::model::{LayoutName, Model, MoveBatch};

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
