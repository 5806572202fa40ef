//! The place of a key: on this node, or the nodes that have it.

use std::sync::Arc;

use forebay_cluster::map::{ClusterMap, MapTable};
use forebay_cluster::{HostPort, NodeId};
use forebay_engine::{TableName, Version};
use forebay_run::Order;
use forebay_run::hash::KeyHasher;

use crate::command::{CommandError, no_table, split};
use crate::table_view::TableView;

pub const JUST_STARTED: &str =
    "LOADING the node has just started, and has not heard of its cluster yet";

/// How keys of a table are located.
#[derive(Debug)]
pub struct TablePlaces<'m> {
    pub table: &'m MapTable,
    version: Option<&'m Arc<Version>>,
    hasher: KeyHasher,
}

/// The place of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPlace<'m> {
    /// Only in hashed tables.
    pub slot: Option<u16>,
    /// The nodes that have it, the primary first.
    pub holders: &'m [NodeId],
    pub is_here: bool,
    /// Whether other nodes have the table's slots than those of other hashed tables.
    pub has_own_slots: bool,
}

impl<'m> TablePlaces<'m> {
    pub fn of(
        map: &'m ClusterMap,
        tables: &'m TableView,
        table: &[u8],
    ) -> Result<Self, CommandError> {
        let name = std::str::from_utf8(table).ok();
        let name = name.and_then(|name| TableName::new(name).ok());
        let known = name.as_ref().and_then(|name| map.table(name));
        let (Some(name), Some(known)) = (&name, known) else {
            if map.revision == 0 {
                return Err(CommandError::error(JUST_STARTED));
            }
            return Err(no_table(table));
        };
        Ok(Self {
            table: known,
            version: tables.batch.get(table),
            hasher: KeyHasher::new(&name.wire_prefix()),
        })
    }

    pub fn place(&self, key: &[u8]) -> KeyPlace<'m> {
        let slot = match self.table.layout.order {
            Order::Hashed => Some(self.hasher.slot(key)),
            Order::Ordered => None,
        };
        KeyPlace {
            slot,
            holders: match slot {
                Some(slot) => self.table.of_slot(slot),
                None => self.table.of_key(key),
            },
            has_own_slots: self.table.has_own_slots(),
            is_here: self
                .version
                .is_some_and(|version| version.partition_of(key).is_some()),
        }
    }
}

/// Returns the error that redirects a client to a slot's address, in Redis's form: without brackets
/// around an IPv6 address.
pub fn moved_to(slot: u16, address: &HostPort) -> String {
    format!("MOVED {slot} {}:{}", address.host, address.port)
}

/// Returns the place of a wire key.
pub fn place_of<'m>(
    map: &'m ClusterMap,
    tables: &'m TableView,
    wire: &[u8],
) -> Result<KeyPlace<'m>, CommandError> {
    let (table, key) = split(wire)?;
    Ok(TablePlaces::of(map, tables, table)?.place(key))
}
