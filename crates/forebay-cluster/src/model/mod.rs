//! What the catalog says: nodes, layouts, tables, work under way.
//!
//! A [`Model`] is made of documents ([`Doc`]). Each is immutable once it is written, and has a name
//! of its own then; a changed one gets a new name. So a change writes what it changed, and who
//! follows reads only that.

mod codec;
mod doc;
mod head;
mod layout;
mod names;
mod nodes;
mod rollout;
mod tables;
mod work;

pub use codec::{Documents, ModelError, parsed, written};
pub use doc::{Doc, DocRef};
pub use head::{CLUSTER_FORMAT, Head, Identity};
pub use layout::{Layout, LayoutChunk, LayoutName, LayoutRoot, RangeEntry};
pub use names::{RequestId, RolloutId};
pub use nodes::{NodeEntry, NodeState, NodesPage};
pub use rollout::{Aim, OnFailure, Phase, Proof, Rollout, RolloutOptions, RolloutTable};
pub use tables::{TableEntry, TablesPage};
pub use work::{Answered, Outcome, WorkPage};

use std::collections::BTreeMap;

use forebay_engine::TableName;

use crate::ids::{NodeId, NodeName};

/// The whole catalog, as of one head. Cheap to clone: documents are shared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    pub nodes: BTreeMap<u32, Doc<NodesPage>>,
    pub layouts: BTreeMap<LayoutName, Layout>,
    pub tables: BTreeMap<u32, Doc<TablesPage>>,
    pub work: Doc<WorkPage>,
}

impl Model {
    pub fn node(&self, id: NodeId) -> Option<&NodeEntry> {
        self.nodes.get(&nodes::page_of(id))?.nodes.get(&id)
    }

    pub fn node_named(&self, name: &NodeName) -> Option<&NodeEntry> {
        self.all_nodes().find(|node| node.name == *name)
    }

    pub fn all_nodes(&self) -> impl Iterator<Item = &NodeEntry> {
        self.nodes.values().flat_map(|page| page.nodes.values())
    }

    /// Enters a node, or replaces its entry; nothing is written where nothing changes.
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
    }

    pub fn layout_of(&self, table: &TableEntry) -> Option<&Layout> {
        self.layouts.get(&table.layout)
    }
}
