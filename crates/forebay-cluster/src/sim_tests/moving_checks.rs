//! Invariants of plans: no node routes to a node that lacks the data.

use forebay_engine::Bounds;

use super::world::{Life, World};
use crate::ids::NodeId;
use crate::model::{Model, MoveStage, TableEntry};
use crate::planning::ranges;

impl World {
    /// Checks that a batch's lists change only when all of their new nodes have the data. Old nodes
    /// give it up only when all nodes know the lists.
    pub fn check_moving(&self, by: Life, before: &Model, after: &Model) -> Option<String> {
        let was = before.work.moving()?;
        let mut plans = after.work.rebalances.iter();
        let is = plans.find(|is| is.request == was.request)?;
        match was.stage {
            MoveStage::Copying { since } if matches!(is.stage, MoveStage::Changed { .. }) => {
                let holders = |model: &Model, at: &Bounds, table: &TableEntry| -> Vec<NodeId> {
                    let ranges = model.layout_of(table).into_iter();
                    let ranges = ranges.flat_map(|layout| layout.within(at));
                    let lists = ranges.flat_map(|range| table.of_list(&range.list));
                    lists.copied().collect()
                };
                for (name, table) in after.all_tables() {
                    let old = before.table(name)?;
                    for (range, at) in ranges(after, table) {
                        let had = holders(before, &at, old);
                        let new = table.of_list(&range.list).iter();
                        for node in new.filter(|node| !had.contains(node)) {
                            let said = self.said(by, after, *node);
                            if said.is_none_or(|said| said.holds < since) {
                                return Some(format!(
                                    "node {node} is to hold a part of {name}, and did not say that it does"
                                ));
                            }
                        }
                    }
                }
                None
            }
            MoveStage::Changed { since } if !matches!(is.stage, MoveStage::Changed { .. }) => {
                let mut up = after.all_nodes().filter(|node| node.is_up());
                let late = up.find(|node| {
                    let said = self.said(by, after, node.id);
                    said.is_none_or(|said| said.revision < since)
                })?;
                Some(format!(
                    "what {} may look for is given up, and it does not know so",
                    late.name
                ))
            }
            _ => None,
        }
    }
}
