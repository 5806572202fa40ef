//! Converts documents of older formats to the next format.
//!
//! Format 1 of both kinds of manifest named partitions by their positions and gave only their
//! beginnings. Format 2 of a live table's manifest did not contain the progress of a partition.

use serde_json::{Value, json};

use crate::keys::partition::FIRST_EPOCH;

/// Upgrades a version's manifest: each partition gets its position as id, and ends where the next
/// one begins.
pub(crate) fn name_partitions(manifest: &mut Value) -> Option<()> {
    let partitions = manifest.get_mut("partitions")?.as_array_mut()?;
    let lowers: Option<Vec<Value>> = partitions
        .iter_mut()
        .map(|partition| partition.as_object_mut()?.remove("lower"))
        .collect();
    for ((partition, id), bounds) in partitions.iter_mut().zip(0u32..).zip(bounds(lowers?)) {
        let partition = partition.as_object_mut()?;
        partition.insert("id".to_owned(), id.into());
        partition.insert("bounds".to_owned(), bounds);
    }
    Some(())
}

/// Upgrades a version's manifest of format 2, which counts only the nulls of its columns.
pub(crate) fn as_it_is(_: &mut Value) -> Option<()> {
    Some(())
}

/// Upgrades a live table's manifest: the partitions in its options and the lists of their runs
/// become one list.
pub(crate) fn name_live_partitions(manifest: &mut Value) -> Option<()> {
    let options = manifest.get_mut("options")?.as_object_mut()?;
    let Value::Array(lowers) = options.remove("lowers")? else {
        return None;
    };
    let lists = manifest.get_mut("partitions")?.as_array_mut()?;
    if lists.len() != lowers.len() {
        return None;
    }
    for ((list, id), bounds) in lists.iter_mut().zip(0u32..).zip(bounds(lowers)) {
        *list = json!({"id": id, "bounds": bounds, "runs": list.take()});
    }
    Some(())
}

/// Upgrades a live table's manifest of format 2: its partitions are in their first epoch, and none
/// of them was replicated.
pub(crate) fn number_live_partitions(manifest: &mut Value) -> Option<()> {
    for partition in manifest.get_mut("partitions")?.as_array_mut()? {
        let partition = partition.as_object_mut()?;
        partition.insert("epoch".to_owned(), FIRST_EPOCH.into());
    }
    Some(())
}

fn bounds(lowers: Vec<Value>) -> Vec<Value> {
    let uppers = lowers.iter().skip(1).cloned().map(Some).chain([None]);
    let bounds = lowers.iter().zip(uppers).map(|(lower, upper)| match upper {
        Some(upper) => json!({"lower": lower, "upper": upper}),
        None => json!({"lower": lower}),
    });
    bounds.collect()
}
