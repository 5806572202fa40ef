//! A node's view of the document of all tables, which it also corrects if nothing else does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{Pointer, TableName};
use object_store::UpdateVersion;
use tracing::warn;

use super::pulled_store::PulledStore;
use super::{NodeAddress, PullError};
use crate::announcing::{AnnounceError, Announcing};
use crate::notify::notify_nodes;
use crate::objects::News;
use crate::tables_document::{NodeEntry, TABLES, TableEntry, TablesDocument};

/// How often a node renews its entry, and the pause after a failure.
const RENEWAL: Duration = Duration::from_secs(3600);
const RETRY: Duration = Duration::from_secs(60);

/// The document of all tables, as a node follows it.
pub struct AllTables {
    pulled: Arc<PulledStore>,
    /// The address at which this node is notified of changes, if any.
    node: Option<NodeAddress>,
    document: Option<TablesDocument>,
    seen: Option<UpdateVersion>,
    /// Tables whose entries differed from their pointers, perhaps only for a moment, with the
    /// pointers as they were seen.
    doubted: BTreeMap<TableName, Option<TableEntry>>,
    /// Refused for lack of permission.
    is_forbidden: bool,
    renew_at: Duration,
}

impl AllTables {
    pub fn new(pulled: Arc<PulledStore>, node: Option<NodeAddress>) -> Self {
        Self {
            pulled,
            node,
            document: None,
            seen: None,
            doubted: BTreeMap::new(),
            is_forbidden: false,
            renew_at: Duration::ZERO,
        }
    }

    /// Returns whether there is a document.
    pub fn is_known(&self) -> bool {
        self.document.is_some()
    }

    /// Returns whether the document is the one with this stamp.
    pub fn is_of(&self, stamp: u64) -> bool {
        self.document
            .as_ref()
            .is_some_and(|known| known.stamp == stamp)
    }

    pub fn names(&self) -> Vec<TableName> {
        let tables = self.document.iter().flat_map(|known| known.tables.keys());
        tables.cloned().collect()
    }

    /// Adds this node's entry, and creates the document if it does not exist.
    pub fn begin(&mut self, now: Duration) {
        self.renew_at = now;
        self.renew(now);
        if self.document.is_none() {
            // Another process may have written it.
            _ = self.ask();
        }
    }

    /// Renews this node's entry, if it is due; returns whether it was.
    pub fn renew(&mut self, now: Duration) -> bool {
        if now < self.renew_at || self.is_forbidden {
            return false;
        }
        let written = self.announcing(|announcing| match &self.node {
            Some(node) => {
                let entry = NodeEntry {
                    tls: node.tls,
                    noted_unix_ms: announcing.clock.unix_ms(),
                };
                announcing.node(&node.address, Some(entry))
            }
            None => announcing.made(),
        });
        self.renew_at = now + if written.is_ok() { RENEWAL } else { RETRY };
        self.wrote(written);
        true
    }

    /// Removes this node's entry when the node stops.
    pub fn leave(&self) {
        let Some(node) = self.node.as_ref().filter(|_| !self.is_forbidden) else {
            return;
        };
        if let Err(error) = self.announcing(|announcing| announcing.node(&node.address, None)) {
            warn!(%error, "the store still lists this node as one to notify of changes");
        }
    }

    fn announcing<T>(
        &self,
        work: impl FnOnce(Announcing<'_>) -> Result<T, AnnounceError>,
    ) -> Result<T, AnnounceError> {
        let local = self.pulled.fetcher.local();
        work(Announcing {
            objects: &self.pulled.objects,
            clock: &**local.clock(),
            random: &**local.random(),
        })
    }

    fn wrote(&mut self, written: Result<TablesDocument, AnnounceError>) {
        match written {
            Ok(document) => {
                // Changes by others are handled with the next answer.
                if self.document.is_none() {
                    self.document = Some(document);
                }
            }
            Err(error) if error.is_forbidden() => {
                self.is_forbidden = true;
                warn!(
                    %error,
                    "this node may not write {TABLES} in the store: it is not notified of swaps, \
                     and sees them only when it polls"
                );
            }
            Err(error) => warn!(%error, "{TABLES} in the store was not written; it is tried again"),
        }
    }

    /// Requests the document. Returns whether it has changed.
    pub fn ask(&mut self) -> Result<bool, PullError> {
        let news = self.pulled.objects.news(TABLES, self.seen.as_ref());
        let news = news.map_err(|source| PullError::Request {
            name: TABLES.to_owned(),
            source,
        })?;
        match news {
            News::Same => Ok(false),
            News::Absent => {
                (self.document, self.seen) = (None, None);
                self.renew_at = Duration::ZERO;
                Ok(false)
            }
            News::Content(bytes, seen) => {
                self.seen = Some(seen);
                match TablesDocument::parse(&bytes) {
                    Ok(document) => {
                        let is_named =
                            |node: &NodeAddress| document.nodes.contains_key(&node.address);
                        if !self.node.as_ref().is_none_or(is_named) {
                            self.renew_at = Duration::ZERO;
                        }
                        self.document = Some(document);
                        Ok(true)
                    }
                    Err(problem) => {
                        warn!(%problem, "{TABLES} in the store is damaged");
                        (self.document, self.renew_at) = (None, Duration::ZERO);
                        Ok(false)
                    }
                }
            }
        }
    }

    /// Treats the next answer as changed: not all of the last one was handled.
    pub fn forget(&mut self) {
        self.seen = None;
    }

    /// Returns the tables whose entries differ from what is known.
    pub fn differing<'a>(
        &'a self,
        known: &dyn Fn(&TableName) -> Option<TableEntry>,
        names: impl Iterator<Item = &'a TableName>,
    ) -> BTreeSet<TableName> {
        let Some(document) = &self.document else {
            return BTreeSet::new();
        };
        let said = document.tables.iter();
        let said = said.filter(|(name, entry)| known(name) != Some(**entry));
        let unsaid = names.filter(|name| !document.tables.contains_key(*name));
        let unsaid = unsaid.filter(|name| known(name).is_some());
        said.map(|(name, _)| name).chain(unsaid).cloned().collect()
    }

    /// Compares the document with a table's pointer as it was found. If they differ, the table is
    /// checked again after the next answer: another process may be about to write the document.
    pub fn compare(&mut self, name: &TableName, found: Option<TableEntry>) {
        if let Some(document) = &self.document
            && document.tables.get(name).copied() != found
        {
            self.doubted.insert(name.clone(), found);
        }
    }

    /// Writes missing changes into the document, and notifies the other nodes.
    pub fn repair(&mut self, pointer: &dyn Fn(&TableName) -> Option<Pointer>) {
        for (name, found) in std::mem::take(&mut self.doubted) {
            let said = self
                .document
                .as_ref()
                .map(|known| known.tables.get(&name).copied());
            let now = pointer(&name);
            let is_left = now.as_ref().and_then(TableEntry::of) == found && said != Some(found);
            if !is_left || self.is_forbidden {
                continue;
            }
            let pointer = now.unwrap_or_else(|| {
                let mut none = Pointer::unset();
                none.dropped = true;
                none
            });
            warn!(table = %name, "{TABLES} in the store did not say what this table's pointer does");
            let written = self.announcing(|announcing| announcing.pointer(&name, &pointer));
            if let Ok(document) = &written {
                self.notify_of(document);
            }
            self.wrote(written);
        }
    }

    /// Notifies the other nodes of what this one found.
    pub fn notify(&self) {
        if let Some(document) = &self.document {
            self.notify_of(document);
        }
    }

    fn notify_of(&self, document: &TablesDocument) {
        let address = self.node.as_ref().map(|node| node.address.as_str());
        notify_nodes(&self.pulled.objects, document, address);
    }
}
