//! `tables.json`: the serving version of each table, and the nodes to notify when that changes.
//!
//! The pointers of the tables decide. The document is written after them, so that one request shows
//! what has changed in all tables. docs/reference/store.md has its fields.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_engine::{DocumentError, Pointer, TableName, seal, unseal};
use serde::{Deserialize, Serialize};

/// The document's name in the store.
pub const TABLES: &str = "tables.json";
const FORMAT: u64 = 1;
/// How long a node may not renew its entry before it is removed. Nodes renew every hour.
const NODE_MS: u64 = 3 * 3600 * 1000;

/// The document of all tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TablesDocument {
    forebay_tables: u64,
    /// Random: no two contents are equal.
    pub stamp: u64,
    pub tables: BTreeMap<TableName, TableEntry>,
    /// By the address of their HTTP port.
    pub nodes: BTreeMap<String, NodeEntry>,
}

/// The identity of a table's pointer, and its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableEntry {
    pub sequence: u64,
    pub stamp: u64,
    pub serving: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    pub tls: bool,
    /// When the node last renewed its entry.
    pub noted_unix_ms: u64,
}

impl TableEntry {
    /// Returns the entry of a pointer. `None`: the table does not exist.
    pub fn of(pointer: &Pointer) -> Option<Self> {
        (!pointer.dropped).then_some(Self {
            sequence: pointer.sequence,
            stamp: pointer.stamp,
            serving: pointer.serving,
        })
    }
}

impl TablesDocument {
    pub fn new(tables: BTreeMap<TableName, TableEntry>) -> Self {
        Self {
            forebay_tables: FORMAT,
            stamp: 0,
            tables,
            nodes: BTreeMap::new(),
        }
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        unseal(bytes, "forebay_tables", FORMAT).map(|(document, _)| document)
    }

    /// Returns the bytes to write, with another stamp.
    pub fn stamped(&mut self, stamp: u64) -> Result<Bytes, DocumentError> {
        self.stamp = stamp;
        seal(self).map(|(bytes, _)| bytes.into())
    }

    /// Removes nodes that have not renewed their entries.
    pub fn forget_nodes(&mut self, now_unix_ms: u64) {
        self.nodes
            .retain(|_, node| now_unix_ms.saturating_sub(node.noted_unix_ms) < NODE_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_as_it_was_written_and_not_when_damaged() {
        let entry = TableEntry {
            sequence: 7,
            stamp: 4711,
            serving: Some(3),
        };
        let name = TableName::new("people").unwrap();
        let mut document = TablesDocument::new(BTreeMap::from([(name, entry)]));
        let node = |noted_unix_ms| NodeEntry {
            tls: false,
            noted_unix_ms,
        };
        document.nodes.insert("10.0.0.1:7380".to_owned(), node(0));
        document
            .nodes
            .insert("10.0.0.2:7380".to_owned(), node(NODE_MS));
        document.forget_nodes(NODE_MS + 1);
        let bytes = document.stamped(9).unwrap();
        let read = TablesDocument::parse(&bytes).unwrap();
        assert_eq!(read, document);
        assert_eq!(read.nodes.len(), 1);
        let mut damaged = bytes.to_vec();
        damaged[30] ^= 1;
        assert!(TablesDocument::parse(&damaged).is_err());
    }
}
