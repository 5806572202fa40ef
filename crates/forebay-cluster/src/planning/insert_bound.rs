//! The most that a plan for an insert could save, before the sizes of partitions are known.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::{Bound, TableName};
use forebay_run::hash::KeyHasher;

use super::Verdict;
use super::duration::LIVE_BATCH;
use super::insert::BulkRows;
use crate::ids::NodeId;
use crate::model::Model;

impl Verdict {
    /// Returns the best possible verdict: the nodes share the inserted rows equally, after one
    /// move. If that is not worthwhile, no plan is, and none needs to be made.
    ///
    /// `bytes_per_s` is the pace of the slowest node.
    pub fn at_best(model: &Model, into: &[BulkRows<'_>], bytes_per_s: u64) -> Self {
        let mut taken: BTreeMap<NodeId, f64> = BTreeMap::new();
        for rows in into {
            add(&mut taken, model, rows);
        }
        let all: f64 = taken.values().sum();
        let can_take = |node: &NodeId| !model.work.drained.contains(node);
        let nodes = model.all_nodes().filter(|node| node.is_up());
        let nodes = nodes.filter(|node| can_take(&node.id)).count();
        let most = taken.values().copied().fold(0.0, f64::max);
        let saved_bytes = (most - all / nodes.max(1) as f64).max(0.0);
        Self {
            saves: Duration::from_secs_f64(saved_bytes / bytes_per_s.max(1) as f64),
            takes: LIVE_BATCH,
        }
    }
}

/// Adds the bytes of a table's inserted rows to the nodes of their replicas.
fn add(taken: &mut BTreeMap<NodeId, f64>, model: &Model, rows: &BulkRows<'_>) {
    let groups = model.desired_groups(rows.table);
    let Some((first, _)) = groups.first() else {
        return;
    };
    let place_of = bound_of(rows.table, &first.bounds.lower);
    let bytes = rows.bytes as f64 / rows.keys.len().max(1) as f64;
    for key in rows.keys {
        let place = place_of(key);
        let after = groups.partition_point(|(group, _)| group.bounds.lower <= place);
        let list = groups[after.saturating_sub(1)].1;
        for node in list {
            *taken.entry(*node).or_default() += bytes;
        }
    }
}

/// Returns a function from a key to its bound, in a table whose first partition begins at `first`.
fn bound_of(table: &TableName, first: &Bound) -> impl Fn(&Vec<u8>) -> Bound {
    let hasher = KeyHasher::new(format!("{table}:").as_bytes());
    let is_hashed = matches!(first, Bound::Slot(_));
    move |key| match is_hashed {
        true => Bound::Slot(hasher.slot(key)),
        false => Bound::Key(key.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::tests::{carts, cluster};
    use super::*;

    const BYTES: u64 = 1 << 30;

    fn best(nodes: (u32, u32), keys: &[Vec<u8>]) -> Verdict {
        let (model, _) = cluster(nodes.0, nodes.1, |_| 0);
        let table = carts();
        let rows = BulkRows {
            table: &table,
            keys,
            rows: 1000,
            bytes: BYTES,
        };
        Verdict::at_best(&model, &[rows], 10 << 20)
    }

    #[test]
    fn evenly_spread_rows_need_a_plan_only_for_empty_nodes() {
        let keys: Vec<Vec<u8>> = (0..20_000)
            .map(|number| format!("{number}").into_bytes())
            .collect();
        let even = best((4, 4), &keys);
        assert!(even.saves < Duration::from_secs(3), "{even:?}");
        // With three replicas, each of four nodes receives three quarters.
        let with_empty_nodes = best((4, 8), &keys);
        let saved = Duration::from_secs_f64(BYTES as f64 * (0.75 - 0.375) / f64::from(10 << 20));
        assert!(with_empty_nodes.saves.abs_diff(saved) < Duration::from_secs(3));
        assert!(with_empty_nodes.is_worth());
    }

    #[test]
    fn rows_of_one_key_go_to_its_nodes() {
        let one = best((4, 4), &[b"key".to_vec()]);
        // Three nodes receive all of it, and four could receive three quarters each.
        let saved = Duration::from_secs_f64(BYTES as f64 / 4.0 / f64::from(10 << 20));
        assert!(one.saves.abs_diff(saved) < Duration::from_millis(1));
        assert_eq!(best((4, 4), &[]).saves, Duration::ZERO);
    }
}
