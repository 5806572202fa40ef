//! Layouts that come by themselves: as long as nothing is held, nothing is moved by another one.

use forebay_engine::TableName;
use forebay_run::Order;

use super::Step;
use crate::ids::NodeId;
use crate::layouts::{ordered_layout, slot_layout};
use crate::model::{Layout, LayoutName, Model};
use crate::version::VersionSummary;

impl Step<'_> {
    /// Lays hashed tables out over all nodes, until the first of them comes. From then on nodes
    /// that come hold nothing before somebody says so.
    pub fn lay_out(&mut self) {
        if self.is_any_hashed() {
            return;
        }
        let nodes: Vec<NodeId> = self.model.all_nodes().map(|node| node.id).collect();
        if nodes.is_empty() || covers(self.model.layouts.get(&LayoutName::Main), &nodes) {
            return;
        }
        if let Ok(ranges) = slot_layout(&self.model) {
            let layout = Layout::new(Order::Hashed, ranges);
            self.model.layouts.insert(LayoutName::Main, layout);
        }
    }

    fn is_any_hashed(&self) -> bool {
        let mut tables = self.model.all_tables();
        tables.any(|(_, table)| table.layout == LayoutName::Main)
    }

    /// The layout that a table of this version has, made when there is none.
    pub fn layout_for(
        &mut self,
        table: &TableName,
        version: &VersionSummary,
    ) -> Result<LayoutName, String> {
        let name = match version.order {
            Order::Hashed => LayoutName::Main,
            Order::Ordered => LayoutName::Table(table.clone()),
        };
        if !self.model.layouts.contains_key(&name) {
            let ranges = match version.order {
                Order::Hashed => slot_layout(&self.model)?,
                Order::Ordered => ordered_layout(&self.model, version)?,
            };
            let layout = Layout::new(version.order, ranges);
            self.model.layouts.insert(name.clone(), layout);
        }
        Ok(name)
    }
}

/// Whether a layout is over just these nodes.
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

/// Layouts that no table has any more.
pub fn unused(model: &Model) -> Vec<LayoutName> {
    let is_used = |name: &LayoutName| {
        *name == LayoutName::Main || model.all_tables().any(|(_, table)| table.layout == *name)
    };
    let unused = model.layouts.keys().filter(|name| !is_used(name));
    unused.cloned().collect()
}
