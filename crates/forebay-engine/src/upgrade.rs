//! Documents of older formats, made ones of the next format.
//!
//! Format 1 of both kinds of manifest named partitions by their places and gave only where they
//! begin. Format 2 of a live table's manifest did not say how far a partition has come.

use serde_json::{Value, json};

use crate::partition::FIRST_EPOCH;

/// A version's manifest: its partitions get their places as ids, and end where the next ones begin.
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

/// A version's manifest of format 2: it counts nothing of its columns but nulls.
pub(crate) fn as_it_is(_: &mut Value) -> Option<()> {
    Some(())
}

/// A live table's manifest: what its options said of its partitions, and the lists of their runs,
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

/// A live table's manifest of format 2: its partitions are in their first epoch, and none of them
/// was replicated.
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
