//! The catalog: one map with conditional writes, which can be slow or unavailable.
//!
//! The outcome of a write may remain unknown.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{Life, MS, SECOND, World};
use crate::catalog::{SeenTag, WriteOutcome};
use crate::ids::ClusterId;
use crate::lease::LeaseDocument;
use crate::model::{Documents, Head, Model, RequestId};
use crate::request::Request;
use crate::time::Timing;

#[derive(Debug)]
pub struct SimStore {
    pub head: Head,
    head_tag: u64,
    pub lease: Option<(LeaseDocument, u64)>,
    pub requests: BTreeMap<RequestId, Request>,
    documents: Documents,
    /// The models of heads whose documents were written, by their stamps.
    models: BTreeMap<u64, Model>,
    /// The stamps of the committed heads, by revision.
    pub committed: BTreeMap<u64, u64>,
    tags: u64,
    /// The store is unavailable to all, or to these hosts.
    pub is_away: bool,
    /// The store allows reads and no writes.
    pub is_read_only: bool,
    pub cut: BTreeSet<usize>,
    /// Of a thousand operations, the numbers that fail, done or not, and that are slow.
    pub fails: u64,
    pub slow: u64,
}

/// The outcome of an operation.
enum Fate {
    Fine,
    /// It is not done, done without an answer, or done after its client gave up.
    NotDone,
    Unheard,
    Late,
}

pub fn tag(number: u64) -> SeenTag {
    SeenTag(number.to_string())
}

impl SimStore {
    pub fn new(cluster: ClusterId, timing: Timing) -> Self {
        let mut head = Head::first(cluster, 1);
        let mut model = Model::default();
        model.work.edit().timing = timing;
        let name = || crate::model::DocRef::new("0");
        let (documents, roots) = model.write(head.forebay_head, name).unwrap();
        head.roots = roots;
        Self {
            models: BTreeMap::from([(head.stamp, model)]),
            committed: BTreeMap::from([(head.revision, head.stamp)]),
            head,
            head_tag: 0,
            lease: None,
            requests: BTreeMap::new(),
            documents,
            tags: 0,
            is_away: false,
            is_read_only: false,
            cut: BTreeSet::new(),
            fails: 0,
            slow: 0,
        }
    }

    pub fn head_and_tag(&self) -> (Head, SeenTag) {
        (self.head.clone(), tag(self.head_tag))
    }

    /// The model of a head whose documents were written.
    pub fn model(&self, head: &Head) -> Option<&Model> {
        self.models.get(&head.stamp)
    }

    pub fn current(&self) -> &Model {
        &self.models[&self.head.stamp]
    }

    /// Writes the lease as [`crate::catalog::Catalog::put_if`] does.
    pub fn put_lease(&mut self, document: LeaseDocument, seen: Option<&SeenTag>) -> WriteOutcome {
        if let Some((known, number)) = &self.lease
            && *known == document
        {
            return WriteOutcome::Done(tag(*number));
        }
        if self.lease.as_ref().map(|(_, number)| tag(*number)).as_ref() != seen {
            return WriteOutcome::Changed;
        }
        self.tags += 1;
        self.lease = Some((document, self.tags));
        WriteOutcome::Done(tag(self.tags))
    }

    /// Writes the documents of a new head.
    pub fn put_documents(&mut self, documents: &Documents, head: &Head) {
        if !self.models.contains_key(&head.stamp) {
            self.documents.extend(documents.clone());
            let model = Model::read(head, &self.documents, self.current());
            self.models.insert(head.stamp, model.unwrap());
        }
    }

    pub fn put_head(&mut self, head: &Head, seen: &SeenTag) -> WriteOutcome {
        if self.head == *head {
            return WriteOutcome::Done(tag(self.head_tag));
        }
        if tag(self.head_tag) != *seen {
            return WriteOutcome::Changed;
        }
        self.tags += 1;
        (self.head, self.head_tag) = (head.clone(), self.tags);
        self.committed.insert(head.revision, head.stamp);
        WriteOutcome::Done(tag(self.tags))
    }
}

impl World {
    pub fn reaches_store(&self, host: usize) -> bool {
        !self.store.is_away && !self.store.cut.contains(&host)
    }

    /// Runs an operation of a process on the store; the process gets its result, or `None` if it
    /// failed.
    pub fn with_store<T: 'static>(
        &mut self,
        by: Life,
        operation: impl FnOnce(&mut World) -> T + 'static,
        then: impl FnOnce(&mut World, Option<T>) + 'static,
    ) {
        self.checks.requests[by.host] += 1;
        let (reaches, host) = (self.reaches_store(by.host), by.host);
        self.operate(reaches, Some(host), operation, then);
    }

    /// Does the same as [`with_store`](Self::with_store) for an operation that writes.
    pub fn write_store<T: 'static>(
        &mut self,
        by: Life,
        operation: impl FnOnce(&mut World) -> T + 'static,
        then: impl FnOnce(&mut World, Option<T>) + 'static,
    ) {
        self.checks.requests[by.host] += 1;
        let reaches = self.reaches_store(by.host) && !self.store.is_read_only;
        self.operate(reaches, Some(by.host), operation, then);
    }

    /// Does the same as [`with_store`](Self::with_store) for a client outside of the cluster.
    pub fn operate<T: 'static>(
        &mut self,
        reaches: bool,
        host: Option<usize>,
        operation: impl FnOnce(&mut World) -> T + 'static,
        then: impl FnOnce(&mut World, Option<T>) + 'static,
    ) {
        let fate = match self.rng.chance(self.store.fails) {
            _ if !reaches => Fate::NotDone,
            false => Fate::Fine,
            true => match self.rng.below(3) {
                0 => Fate::NotDone,
                1 => Fate::Unheard,
                _ => Fate::Late,
            },
        };
        let is_slow = self.rng.chance(self.store.slow);
        let most = if is_slow { 6 * SECOND } else { 30 * MS };
        let (there, back) = (MS + self.rng.below(most), MS + self.rng.below(most));
        match fate {
            Fate::Fine => self.after(there, move |world| {
                // It may have been cut off meanwhile.
                let reaches = host.map_or(!world.store.is_away, |host| world.reaches_store(host));
                let done = reaches.then(|| operation(world));
                world.after(back, |world| then(world, done));
            }),
            Fate::NotDone => self.after(there + back, |world| then(world, None)),
            Fate::Unheard => self.after(there, move |world| {
                operation(world);
                world.after(back, |world| then(world, None));
            }),
            Fate::Late => {
                self.after(there, |world| then(world, None));
                self.after(there + back + SECOND, move |world| {
                    operation(world);
                });
            }
        }
    }
}
