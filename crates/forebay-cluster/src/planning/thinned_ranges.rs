//! Finds ranges that a plan leaves with fewer readable replicas, because nodes are down.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::NodeId;
use crate::model::Model;

/// Ranges that will be on fewer nodes that are up than now, and than their tables ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThinnedRanges {
    /// The number of ranges, by the number of nodes that are up and hold them afterwards.
    pub ranges: BTreeMap<usize, usize>,
    /// The nodes that are down and are to hold them.
    pub down: BTreeSet<NodeId>,
}

/// Returns the thinned ranges. `None`: there are none.
pub fn thinned(before: &Model, after: &Model) -> Option<ThinnedRanges> {
    let is_up = |node: &NodeId| before.node(*node).is_some_and(|entry| entry.is_up());
    let mut thinned: Option<ThinnedRanges> = None;
    for (name, table) in after.all_tables() {
        let had = before.table(name);
        let had = had.and_then(|table| Some((table, before.layout_of(table)?)));
        let (Some((old, had)), Some(has)) = (had, after.layout_of(table)) else {
            continue;
        };
        for range in has.ranges() {
            let list = table.of_list(&range.list);
            let up = list.iter().filter(|node| is_up(node)).count();
            let was = had.ranges().filter(|one| one.lower <= range.lower).last();
            let was = was.map_or(&[][..], |one| old.of_list(&one.list));
            if up == list.len() || up >= was.iter().filter(|node| is_up(node)).count() {
                continue;
            }
            let found = thinned.get_or_insert_default();
            *found.ranges.entry(up).or_default() += 1;
            let down = list.iter().filter(|node| !is_up(node));
            found.down.extend(down);
        }
    }
    thinned
}

impl ThinnedRanges {
    /// Describes the thinned ranges for operators.
    pub fn words(&self, model: &Model) -> String {
        let down = self.down.iter().map(|node| model.node_name(*node));
        let down: Vec<String> = down.collect();
        let are = if down.len() == 1 { "is" } else { "are" };
        let each = self.ranges.iter().map(|(copies, ranges)| {
            let ranges = counted(*ranges, "range");
            match copies {
                0 => format!("{ranges} without a copy that can be read"),
                _ => format!("{ranges} with {}", counted(*copies, "copy")),
            }
        });
        let each: Vec<String> = each.collect();
        format!(
            "{} {are} down: until that changes, the plan leaves {}, fewer than now. Start what is down first, or \
             replace it",
            down.join(", "),
            each.join(" and ")
        )
    }
}

fn counted(count: usize, what: &str) -> String {
    match (count, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {what}s"),
    }
}
