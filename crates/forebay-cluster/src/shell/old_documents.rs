//! Removes documents of the catalog that no head names any more.
//!
//! Followers may still be reading a document that was just superseded, so it is removed an hour
//! later. A new coordinator records all existing documents, and so finds those that an earlier one
//! left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tracing::debug;

use super::Shell;
use crate::model::DocRef;

/// How long a superseded document is kept.
const STAYS: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub struct OldDocuments {
    /// The documents of the last examined head; none before a coordinator first examines one.
    named: Option<BTreeSet<DocRef>>,
    /// The removal time of each document that no head names.
    goes_at: BTreeMap<DocRef, Duration>,
}

impl OldDocuments {
    /// Records the documents of a head; returns the documents to remove now.
    fn look(&mut self, now: Duration, named: BTreeSet<DocRef>) -> Vec<DocRef> {
        if let Some(before) = &self.named {
            let ended = before.difference(&named).cloned();
            self.goes_at.extend(ended.map(|name| (name, now + STAYS)));
        }
        // A restored catalog may name superseded documents again.
        self.goes_at.retain(|name, _| !named.contains(name));
        self.named = Some(named);
        let due = self.goes_at.iter().filter(|(_, at)| **at <= now);
        let due: Vec<DocRef> = due.map(|(name, _)| name.clone()).collect();
        self.goes_at.retain(|_, at| *at > now);
        due
    }

    /// Records all existing documents, as a new coordinator finds them.
    fn found(&mut self, now: Duration, names: Vec<String>) {
        let named = self.named.clone().unwrap_or_default();
        let names = names.iter().map(|name| DocRef::new(name));
        let lost = names.filter(|name| !named.contains(name));
        self.goes_at.extend(lost.map(|name| (name, now + STAYS)));
    }
}

impl Shell {
    /// Removes documents that are due, if this node is the coordinator.
    pub(super) fn remove_superseded(self: &Arc<Self>) {
        let node = self.node.lock();
        let standing = node
            .coordinator()
            .and_then(|coordinator| coordinator.standing());
        let named = standing.map(|(_, model)| model.references().into_iter().collect());
        drop(node);
        let now = self.now().monotonic;
        let mut old_documents = self.old_documents.lock();
        let Some(named) = named else {
            *old_documents = OldDocuments::default();
            return;
        };
        let is_new = old_documents.named.is_none();
        let due = old_documents.look(now, named);
        drop(old_documents);
        if !is_new && due.is_empty() {
            return;
        }
        self.background("forebay-superseded", move |shell| {
            let catalog = &shell.parts.catalog;
            for name in due {
                if let Err(error) = catalog.remove(&format!("d/{name}")) {
                    debug!(%error, "a superseded document stays");
                }
            }
            if is_new && let Ok(names) = catalog.list("d") {
                shell.old_documents.lock().found(now, names);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_no_head_names_are_removed_after_an_hour() {
        let names = |names: &[&str]| names.iter().map(|name| DocRef::new(name)).collect();
        let at = |seconds| Duration::from_secs(seconds);
        let mut old_documents = OldDocuments::default();
        assert!(old_documents.look(at(0), names(&["a", "b"])).is_empty());
        old_documents.found(at(0), vec!["a".into(), "b".into(), "lost".into()]);
        assert!(old_documents.look(at(100), names(&["b", "c"])).is_empty());
        assert_eq!(
            old_documents.look(at(3600), names(&["b", "c"])),
            [DocRef::new("lost")]
        );
        assert_eq!(
            old_documents.look(at(3700), names(&["b", "c"])),
            [DocRef::new("a")]
        );
        assert!(old_documents.look(at(9999), names(&["b"])).is_empty());
        assert!(
            old_documents
                .look(at(10_000), names(&["b", "c"]))
                .is_empty()
        );
        assert!(
            old_documents
                .look(at(20_000), names(&["b", "c"]))
                .is_empty()
        );
    }
}
