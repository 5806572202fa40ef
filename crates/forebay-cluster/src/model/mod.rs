//! The model of the catalog: nodes, layouts, tables and work under way.
//!
//! A [`Model`] consists of documents ([`Doc`]). Each document is immutable once it is written, and
//! then has a unique name. A changed document gets a new name. So a change writes only the changed
//! documents, and a node that follows the catalog reads only those.

mod codec;
mod doc;
mod group_checks;
mod groups;
mod head;
mod layout;
mod live;
mod loads;
mod names;
mod next_checks;
mod nodes;
mod rebalance;
mod rollout;
mod splits;
mod tables;
mod work;

pub use codec::{Documents, ModelError, parsed, parsed_as, written};
pub use doc::{Doc, DocRef};
pub use groups::{
    GroupEntry, GroupsPage, GroupsRoot, InheritedReplica, PeerEntry, PeerState, PlannedSplit,
    SplitFrom, TableGroups, fresh_id,
};
pub use head::{
    FORMAT_OF_LIVE, FORMAT_OF_PLANS, FORMAT_OF_REMAKES, FORMAT_OF_TIMING, FORMATS, Head, Identity,
    NEWEST_FORMAT,
};
pub use layout::{Layout, LayoutChunk, LayoutName, LayoutRoot, RangeEntry};
pub use live::{DesiredGroup, LiveEntry, Replication, live_replicas};
pub use loads::{EndedLoad, LoadDraft, LoadStage, LoadedPartition, TableLoad};
pub use names::{RequestId, RolloutId};
pub use nodes::{NodeEntry, NodeState, NodesPage};
pub use rebalance::{
    ListChange, MoveBatch, MovePlan, MoveStage, PlanGoal, Rebalance, ReplicasChange, SplitChange,
};
pub use rollout::{OnFailure, Phase, Proof, Rollout, RolloutOptions, RolloutRole, RolloutTable};
pub use splits::ChildIds;
pub use tables::{TableEntry, TablesPage};
pub use work::{Outcome, RequestAnswer, Survey, SurveyedPartition, WorkPage};

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::TableName;

use crate::ids::{NodeId, NodeName};
use crate::time::Timing;

/// The whole catalog, as of one head. It is cheap to clone, because clones share documents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    pub nodes: BTreeMap<u32, Doc<NodesPage>>,
    pub layouts: BTreeMap<LayoutName, Layout>,
    pub tables: BTreeMap<u32, Doc<TablesPage>>,
    /// The groups of live tables.
    pub groups: BTreeMap<TableName, TableGroups>,
    /// The plan. The work page has its progress.
    pub plan: Option<Doc<MovePlan>>,
    pub work: Doc<WorkPage>,
}

impl Model {
    /// Returns the timing of the cluster's protocols.
    pub fn timing(&self) -> Timing {
        self.work.timing
    }

    pub fn node(&self, id: NodeId) -> Option<&NodeEntry> {
        self.nodes.get(&nodes::page_of(id))?.nodes.get(&id)
    }

    pub fn node_named(&self, name: &NodeName) -> Option<&NodeEntry> {
        self.all_nodes().find(|node| node.name == *name)
    }

    /// Returns the node of this name, or an error that says that there is none.
    pub fn known_node(&self, name: &NodeName) -> Result<&NodeEntry, String> {
        let words = || format!("the cluster has no node {name}: forebay cluster status lists them");
        self.node_named(name).ok_or_else(words)
    }

    pub fn all_nodes(&self) -> impl Iterator<Item = &NodeEntry> {
        self.nodes.values().flat_map(|page| page.nodes.values())
    }

    /// Adds a node, or replaces its entry. An unchanged entry causes no write.
    pub fn put_node(&mut self, entry: NodeEntry) {
        if self.node(entry.id) == Some(&entry) {
            return;
        }
        let page = self.nodes.entry(nodes::page_of(entry.id)).or_default();
        page.edit().nodes.insert(entry.id, entry);
    }

    pub fn remove_node(&mut self, id: NodeId) {
        if let Some(page) = self.nodes.get_mut(&nodes::page_of(id))
            && page.nodes.contains_key(&id)
        {
            page.edit().nodes.remove(&id);
        }
    }

    pub fn table(&self, name: &TableName) -> Option<&TableEntry> {
        self.tables.get(&tables::page_of(name))?.tables.get(name)
    }

    pub fn all_tables(&self) -> impl Iterator<Item = (&TableName, &TableEntry)> {
        self.tables.values().flat_map(|page| page.tables.iter())
    }

    pub fn put_table(&mut self, name: &TableName, entry: TableEntry) {
        if self.table(name) == Some(&entry) {
            return;
        }
        let page = self.tables.entry(tables::page_of(name)).or_default();
        page.edit().tables.insert(name.clone(), entry);
    }

    pub fn remove_table(&mut self, name: &TableName) {
        if let Some(page) = self.tables.get_mut(&tables::page_of(name))
            && page.tables.contains_key(name)
        {
            page.edit().tables.remove(name);
        }
        self.groups.remove(name);
    }

    /// Returns a node's name. If the node no longer exists, returns its number.
    pub fn node_name(&self, id: NodeId) -> String {
        let node = self.node(id);
        node.map_or_else(|| id.to_string(), |node| node.name.to_string())
    }

    /// Returns the layouts that any table uses.
    pub fn used_layouts(&self) -> impl Iterator<Item = (&LayoutName, &Layout)> {
        let used: BTreeSet<&LayoutName> =
            self.all_tables().map(|(_, table)| &table.layout).collect();
        let layouts = self.layouts.iter();
        layouts.filter(move |(name, _)| used.contains(name))
    }

    /// Returns the batch that a plan is carrying out, without tables that were dropped in the
    /// meantime.
    pub fn batch_of(&self, moving: &Rebalance) -> Option<MoveBatch> {
        let plan = self.plan.as_ref()?;
        let mut batch = plan.batches.get(moving.done)?.clone();
        batch
            .lists
            .retain(|change| self.layouts.contains_key(&change.layout));
        batch
            .replicas
            .retain(|change| self.table(&change.table).is_some());
        batch.own.retain(|table| self.table(table).is_some());
        batch
            .splits
            .retain(|split| self.groups.contains_key(&split.table));
        Some(batch)
    }

    /// Applies `edit` to the ranges that a plan changes.
    pub fn edit_lists(
        &mut self,
        changes: &[ListChange],
        edit: impl Fn(&ListChange, &mut RangeEntry),
    ) {
        let layouts: BTreeSet<&LayoutName> = changes.iter().map(|change| &change.layout).collect();
        for name in layouts {
            if let Some(layout) = self.layouts.get_mut(name) {
                let (changes, edit) = (changes.iter(), &edit);
                let changes = changes.filter(|change| change.layout == *name);
                layout.change(changes.map(|change| {
                    let edit = move |range: &mut RangeEntry| edit(change, range);
                    (&change.bounds, edit)
                }));
            }
        }
    }

    /// Gives a batch table its own layout, in which every node of a list holds its range. The
    /// assignment does not change.
    pub fn give_own_layout(&mut self, table: &TableName) {
        let Some(mut entry) = self.table(table).filter(|entry| !entry.by_range).cloned() else {
            return;
        };
        let Some(layout) = self.layout_of(&entry) else {
            return;
        };
        let mut ranges: Vec<RangeEntry> = layout
            .ranges()
            .map(|range| RangeEntry::new(range.lower.clone(), entry.of_list(&range.list).to_vec()))
            .collect();
        ranges.dedup_by(|next, range| next.list == range.list);
        (entry.layout, entry.by_range) = (LayoutName::Table(table.clone()), true);
        let own = Layout::new(entry.order, ranges);
        self.layouts.insert(entry.layout.clone(), own);
        self.put_table(table, entry);
    }

    pub fn layout_of(&self, table: &TableEntry) -> Option<&Layout> {
        self.layouts.get(&table.layout)
    }
}
