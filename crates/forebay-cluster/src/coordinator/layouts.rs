//! Layouts that the coordinator makes by itself, while no node has any data that they would move.

use std::collections::BTreeSet;

use forebay_engine::TableName;
use forebay_run::Order;

use super::Step;
use crate::ids::NodeId;
use crate::model::{Layout, LayoutName, Model, RangeEntry};
use crate::request::REPLICAS;
use crate::routing::layouts::{longer_lists, ordered_layout, slot_layout};
use crate::routing::version::VersionSummary;

impl Step<'_> {
    /// Spreads the layout of hashed tables over all nodes, until the first hashed table exists.
    /// Nodes that join later get nothing until an operator adds them.
    pub fn lay_out(&mut self) {
        if self.is_any_hashed() || self.model.work.moving().is_some() {
            return;
        }
        let all = self.model.all_nodes().map(|node| node.id);
        let drained = &self.model.work.drained;
        let nodes: Vec<NodeId> = all.filter(|node| !drained.contains(node)).collect();
        if nodes.is_empty() || covers(self.model.layouts.get(&LayoutName::Main), &nodes) {
            return;
        }
        if let Ok(ranges) = slot_layout(&self.model, REPLICAS) {
            let layout = Layout::new(Order::Hashed, ranges);
            self.model.layouts.insert(LayoutName::Main, layout);
        }
    }

    fn is_any_hashed(&self) -> bool {
        let mut tables = self.model.all_tables();
        tables.any(|(_, table)| table.layout == LayoutName::Main)
    }

    /// Returns the layout for a new table of this version with so many replicas. Makes the layout
    /// if there is none, and lengthens its preference lists if needed.
    pub fn layout_for(
        &mut self,
        table: &TableName,
        version: &VersionSummary,
        replicas: usize,
    ) -> Result<LayoutName, String> {
        let replicas = replicas.max(REPLICAS);
        let name = match version.order {
            Order::Hashed => LayoutName::Main,
            Order::Ordered => LayoutName::Table(table.clone()),
        };
        let held = self.model.layouts.get(&name);
        let held = held.filter(|_| version.order == Order::Hashed && self.is_any_hashed());
        let is_short = |range: &RangeEntry| range.list.len() < replicas;
        let ranges = match (held, version.order) {
            (Some(held), _) if !held.ranges().any(is_short) => return Ok(name),
            (Some(_), _) if self.model.work.moving().is_some() => {
                return Err(format!(
                    "table {table} is to have {replicas} replicas, more than others, and that waits for the end of \
                     a rebalance: push it again after that (forebay cluster status)"
                ));
            }
            (Some(held), _) => longer_lists(&self.model, held, replicas)?,
            (None, Order::Hashed) => slot_layout(&self.model, replicas)?,
            (None, Order::Ordered) => ordered_layout(&self.model, version, replicas)?,
        };
        let layout = Layout::new(version.order, ranges);
        self.model.layouts.insert(name.clone(), layout);
        Ok(name)
    }
}

/// Returns whether a layout spans exactly these nodes.
fn covers(layout: Option<&Layout>, nodes: &[NodeId]) -> bool {
    let Some(layout) = layout else {
        return false;
    };
    let mut listed: Vec<NodeId> = layout
        .ranges()
        .flat_map(|range| range.list.iter().copied())
        .collect();
    listed.sort_unstable();
    listed.dedup();
    listed == nodes
}

/// Returns the layouts that no table uses.
pub fn unused(model: &Model) -> Vec<LayoutName> {
    let used: BTreeSet<&LayoutName> = model.used_layouts().map(|(name, _)| name).collect();
    let is_used = |name: &LayoutName| *name == LayoutName::Main || used.contains(name);
    let unused = model.layouts.keys().filter(|name| !is_used(name));
    unused.cloned().collect()
}
