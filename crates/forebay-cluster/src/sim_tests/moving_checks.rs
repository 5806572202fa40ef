//! What has to hold of plans: nobody is led to a node that lacks what is asked for.

use forebay_engine::Bounds;

use super::world::{Life, World};
use crate::ids::NodeId;
use crate::model::{Model, MoveStage, TableEntry};
use crate::planning::ranges;

impl World {
    /// A batch's lists change when all that are new in them hold it, and what they held is given up
    /// when all know.
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
