//! Fetches and serves versions: each version serves as the head says, once it is on the node.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{Bounds, TableName};

use super::Follower;
use crate::bugs::{Bug, is_planted};
use crate::model::Model;
use crate::node::copies::{CopyState, VersionPlace, kept, wanted};
use crate::node::events::{Activation, FollowerAction, Serve};
use crate::node::reported_state::lacks;
use crate::time::Now;

impl Follower {
    /// Starts fetching wanted versions, and gives up others.
    pub(super) fn reconcile(&mut self, now: Now, actions: &mut Vec<FollowerAction>) {
        let (Some((head, model)), Some(me)) = (&self.known, self.id) else {
            return;
        };
        // There can be thousands of tables, so this is computed once per head.
        if self.wanted_of != Some((head.stamp, me)) {
            self.wanted = wanted(model, me);
            self.wanted_of = Some((head.stamp, me));
        }
        let kept: BTreeSet<VersionPlace> = kept(model).collect();
        // Versions that still serve stay until the activation that ends them. Versions that are
        // about to serve stay until they do.
        let begun = self.activating.iter().flat_map(|begun| &begun.tables);
        let active = self.active.iter().chain(begun);
        let active = active.map(|(table, serve)| (table.clone(), serve.version));
        let is_remade = |place: &VersionPlace| self.remade.contains(&place.0);
        let kept = kept.into_iter().filter(|place| !is_remade(place));
        let kept = kept.chain(active).collect();
        let mut wanted = Cow::Borrowed(&self.wanted);
        if !self.remade.is_empty() {
            wanted.to_mut().retain(|place, _| !is_remade(place));
        }
        let work = self.copies.reconcile(now, &wanted, &kept);
        for place in work.forget {
            self.tries.remove(&place);
            actions.push(FollowerAction::Forget { place });
        }
        let prepare = work.prepare.into_iter();
        actions.extend(prepare.map(FollowerAction::from));
    }

    /// Records the tables of a model that were dropped and created again under the same name.
    pub(super) fn note_remade(&mut self, now: &Model) {
        let Some((_, before)) = &self.known else {
            return;
        };
        let is_another = |table: &TableName, made| match before.table(table) {
            Some(known) => known.made != made,
            // The table was dropped before, and its versions are still in the cache.
            None => self.cached.contains(table),
        };
        let others = now
            .all_tables()
            .filter(|(table, entry)| is_another(table, entry.made));
        let others: Vec<TableName> = others.map(|(table, _)| table.clone()).collect();
        self.remade.extend(others);
    }

    /// Makes the versions of the head serve, as far as they are on the node.
    pub(super) fn activate(&mut self, now: Now, actions: &mut Vec<FollowerAction>) {
        let (Some((head, model)), Some(_)) = (&self.known, self.id) else {
            return;
        };
        if self.activating.is_some() {
            return;
        }
        let mut target = BTreeMap::new();
        self.remade.retain(|table| self.cached.contains(table));
        for (table, entry) in model.all_tables() {
            let Some(version) = entry.serving.filter(|_| !self.remade.contains(table)) else {
                continue;
            };
            let place = (table.clone(), version);
            let (history, copy) = (entry.history.clone(), self.copies.get(&place));
            let serve = |ranges: &Vec<Bounds>| Serve {
                version,
                history: history.clone(),
                ranges: ranges.clone(),
            };
            let before = self
                .active
                .get(table)
                .filter(|before| before.version == version);
            let next = match (copy, before) {
                (Some(copy), _) if matches!(copy.state, CopyState::Ready(_)) => serve(&copy.ranges),
                // The node is fetching other ranges of it: the local ranges keep serving.
                (_, Some(before)) => serve(&before.ranges),
                (_, None) if is_planted(Bug::AnswersFromOld) => match self.active.get(table) {
                    Some(old) => old.clone(),
                    None => continue,
                },
                (_, None) => continue,
            };
            target.insert(table.clone(), next);
        }
        let is_gone = |table: &&TableName| {
            let entry = model.table(table);
            entry.is_none_or(|entry| entry.live.is_some()) || self.remade.contains(*table)
        };
        // A remembered catalog is no reason to remove anything.
        let cached = match self.replicas.is_from_memory {
            true => None,
            false => Some(self.cached.iter()),
        };
        let cached = cached.into_iter().flatten();
        let dropped: BTreeSet<TableName> = cached.filter(is_gone).cloned().collect();
        let is_serving = target == self.active && dropped.is_empty() && self.refused.is_empty();
        if is_serving {
            if !lacks(model, &self.active) {
                self.serves = self.serves.max(head.revision);
            }
        } else if target != self.tried || now.monotonic >= self.retry_at {
            self.tried.clone_from(&target);
            debug_assert!(
                dropped.iter().all(|table| !target.contains_key(table)),
                "of {dropped:?}, which is to be dropped, some is to serve"
            );
            self.cached.extend(target.keys().cloned());
            let begun = Activation {
                revision: head.revision,
                tables: target,
                dropped,
            };
            self.activating = Some(begun.clone());
            actions.push(FollowerAction::Activate(begun));
        }
    }

    pub(super) fn activated(
        &mut self,
        now: Now,
        revision: u64,
        problems: BTreeMap<TableName, String>,
        actions: &mut Vec<FollowerAction>,
    ) {
        let begun = self.activating.take_if(|begun| begun.revision == revision);
        let Some(Activation {
            mut tables,
            dropped,
            ..
        }) = begun
        else {
            return;
        };
        debug_assert!(
            problems
                .keys()
                .all(|table| tables.contains_key(table) || dropped.contains(table)),
            "tables that were not to serve in revision {revision} do not: {problems:?}"
        );
        tables.retain(|table, _| !problems.contains_key(table));
        let is_undone =
            |table: &TableName| problems.contains_key(table) && !is_planted(Bug::ForgetsADrop);
        self.cached
            .retain(|table| !dropped.contains(table) || is_undone(table));
        self.active = tables;
        self.refused = problems;
        self.retry_at = now.monotonic + self.timing().retry();
        let known = self.known.as_ref();
        if known.is_some_and(|(_, model)| !lacks(model, &self.active)) {
            self.serves = self.serves.max(revision);
        }
        actions.push(FollowerAction::Route);
    }
}
