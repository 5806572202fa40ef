//! Carries out the catalog's orders: creates and runs ordered replicas, and removes others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_engine::TableName;
use forebay_io::Random;
use tracing::{info, warn};

use super::commons::{ReplicaCommons, ReplicaPlace, ReplicaStanding};
use super::opening::{HeldTable, KeepError, TableOpener, replicated};
use super::peers::PeerMaker;
use super::peers_file::PeersFile;
use super::roster::Roster;
use crate::measures::reports::ReplicaProblem;
use crate::routing::live::{ReplicaOrder, ReplicaOrders};

/// The tables of which this node has replicas. One thread at a time owns it.
#[derive(Debug)]
pub struct ReplicaKeeper {
    pub opener: TableOpener,
    pub maker: PeerMaker,
    pub commons: Arc<ReplicaCommons>,
    pub random: Arc<dyn Random>,
    pub tables: BTreeMap<TableName, HeldTable>,
    /// Replicas that existed and are no longer usable.
    pub problems: BTreeMap<ReplicaPlace, ReplicaProblem>,
    /// The last logged problem of each table that cannot be kept as ordered.
    pub reported: BTreeMap<TableName, String>,
}

type TableOrders<'a> = [&'a ReplicaOrder];

impl ReplicaKeeper {
    /// Carries out orders. Returns whether all of them succeeded; if not, the caller retries.
    pub fn carry_out(&mut self, orders: &ReplicaOrders) -> bool {
        self.commons
            .roster
            .store(Arc::new(Roster::of(&orders.replicas)));
        self.commons.order_loads(&orders.replicas);
        let mut by_table: BTreeMap<&TableName, Vec<&ReplicaOrder>> = BTreeMap::new();
        for order in &orders.replicas {
            by_table.entry(&order.table).or_default().push(order);
        }
        let places: BTreeSet<ReplicaPlace> = orders.replicas.iter().map(place).collect();
        self.problems.retain(|place, _| places.contains(place));
        let mut is_done = true;
        if !orders.is_from_memory {
            let wanted: BTreeSet<&TableName> = by_table.keys().copied().collect();
            is_done &= self.remove_others(&wanted);
        }
        let mut standings = BTreeMap::new();
        for (name, list) in &by_table {
            let kept = self.keep(name, list, orders);
            is_done &=
                self.notify(name, kept) && !self.awaits_cut(name, list) && self.all_run(name, list);
            standings.extend(self.standings(name, list));
        }
        *self.commons.standings.lock() = standings;
        is_done
    }

    /// Returns whether a log broke, so that its replicas have to be reported, and replaced by new
    /// peers.
    pub fn is_broken(&self) -> bool {
        let mut held = self.tables.values();
        held.any(|held| held.engine_log.failure().is_some())
    }

    /// Returns why tables are not in their ordered state: the last try failed, or they have no
    /// room.
    pub fn troubles(&self) -> BTreeMap<TableName, String> {
        let reported = self.reported.iter();
        let mut troubles: BTreeMap<TableName, String> = reported
            .map(|(table, problem)| (table.clone(), format!("live table {table}: {problem}")))
            .collect();
        for (name, held) in &self.tables {
            if let Some(problem) = held.trouble() {
                let text = format!("live table {name}: {problem}");
                troubles.entry(name.clone()).or_insert(text);
            }
        }
        troubles
    }

    /// Logs a problem, but the same one only once.
    fn notify(&mut self, name: &TableName, kept: Result<(), KeepError>) -> bool {
        let problem = match kept {
            Ok(()) => {
                if self.reported.remove(name).is_some() {
                    info!(table = %name, "its replicas are as they are ordered");
                }
                return true;
            }
            Err(error) => error.to_string(),
        };
        if self.reported.get(name) != Some(&problem) {
            warn!(table = %name, problem, "its replicas are not as they are ordered yet");
            self.reported.insert(name.clone(), problem);
        }
        false
    }

    /// Removes tables of which no replica is ordered.
    fn remove_others(&mut self, wanted: &BTreeSet<&TableName>) -> bool {
        let here = match self.opener.cache.live_tables() {
            Ok(here) => here,
            Err(error) => {
                warn!(%error, "the live tables here are not known");
                return false;
            }
        };
        let held = self.tables.keys().cloned();
        let mut all: BTreeSet<TableName> = here.into_iter().chain(held).collect();
        all.retain(|name| !wanted.contains(name));
        let mut is_done = true;
        for name in all {
            let removed = self.remove_table(&name);
            is_done &= self.notify(&name, removed);
        }
        self.reported
            .retain(|name, _| wanted.contains(name) || !is_done);
        is_done
    }

    fn remove_table(&mut self, name: &TableName) -> Result<(), KeepError> {
        self.let_go(name);
        self.opener.remove(name)?;
        info!(table = %name, "removed: no replica of it is to be here");
        Ok(())
    }

    /// Ends the replicas of a table, and closes it.
    fn let_go(&mut self, name: &TableName) {
        let Some(held) = self.tables.remove(name) else {
            return;
        };
        self.commons.hide(name);
        for group in &held.running {
            self.commons.end(*group);
        }
        self.commons.checkpoints.end_of_table(name);
        // Remaining users of the log cannot write beside the log that replaces it.
        held.engine_log.abandon();
    }

    /// Ends all replicas, and closes their tables as they are.
    pub fn let_all_go(&mut self) {
        let names: Vec<TableName> = self.tables.keys().cloned().collect();
        names.iter().for_each(|name| self.let_go(name));
        self.commons.host.close();
    }

    /// Does the same, and records that the files are complete.
    pub fn close(&mut self) {
        let running: Vec<_> = self.commons.running.lock().keys().copied().collect();
        running
            .into_iter()
            .for_each(|group| self.commons.end(group));
        self.commons.host.close();
        for (name, held) in std::mem::take(&mut self.tables) {
            self.commons.hide(&name);
            self.commons.checkpoints.end_of_table(&name);
            if let Err(error) = held.close() {
                warn!(table = %name, %error, "its replicas may have to join their groups again");
            }
        }
    }

    fn keep(
        &mut self,
        name: &TableName,
        list: &TableOrders<'_>,
        orders: &ReplicaOrders,
    ) -> Result<(), KeepError> {
        let is_from_memory = orders.is_from_memory;
        if !is_from_memory {
            self.begin_again(name, list)?;
        }
        if !self.hold(name, list, is_from_memory)? {
            return Ok(());
        }
        let done = self.keep_peers(name, list, orders);
        if let Err(KeepError::Reopens(_)) = &done {
            self.let_go(name);
        }
        done
    }

    fn keep_peers(
        &mut self,
        name: &TableName,
        list: &TableOrders<'_>,
        orders: &ReplicaOrders,
    ) -> Result<(), KeepError> {
        let is_from_memory = orders.is_from_memory;
        let Some(held) = self.tables.get_mut(name) else {
            return Ok(());
        };
        let removed = match is_from_memory {
            true => Ok(()),
            false => {
                let revision = orders.revision;
                self.maker
                    .remove_unordered(&self.commons, held, list, revision)
            }
        };
        self.run_peers(name, list);
        let Some(held) = self.tables.get_mut(name) else {
            return removed;
        };
        if !is_from_memory {
            let note = held.note.get();
            let is_missed = |order: &ReplicaOrder| {
                let is_whole = covers(held, order);
                !note.has(order) && !is_whole && note.never_had(order)
            };
            let new = list.iter().filter(|order| order.is_new || is_missed(order));
            let new: Vec<&ReplicaOrder> = new.copied().collect();
            let has_missed = new.iter().any(|order| !order.is_new);
            for order in new {
                match self.maker.make(&self.commons, held, order) {
                    Err(KeepError::Lasts(problem, text)) => {
                        warn!(table = %name, group = order.group.0, text, "a replica cannot begin");
                        self.problems.insert(place(order), problem);
                    }
                    made => made?,
                }
            }
            if has_missed {
                self.run_peers(name, list);
            }
        }
        removed
    }

    /// Starts existing replicas that have to run.
    fn run_peers(&mut self, name: &TableName, list: &TableOrders<'_>) {
        let Some(held) = self.tables.get_mut(name) else {
            return;
        };
        for order in list {
            if order.is_new || !held.note.has(order) || self.problems.contains_key(&place(order)) {
                continue;
            }
            let seed = self.random.next_u64();
            if let Err(KeepError::Lasts(problem, text)) =
                self.maker.run(&self.commons, held, order, seed)
            {
                warn!(table = %name, group = order.group.0, text, "a replica cannot continue");
                self.problems.insert(place(order), problem);
            }
        }
    }

    /// Removes a table none of whose content counts any more, whatever is left of it. It is then
    /// created again.
    fn begin_again(&mut self, name: &TableName, list: &TableOrders<'_>) -> Result<(), KeepError> {
        if self.log_broke(name) {
            self.forget(name, list, ReplicaProblem::Forgot)?;
        }
        if list.iter().any(|order| !order.is_new) {
            return Ok(());
        }
        let note = match self.tables.get(name) {
            Some(held) => held.note.get(),
            None if self.opener.cache.is_live(name)? => PeersFile::read(&self.opener.cache, name)?,
            None => return Ok(()),
        };
        let is_void = |held: &HeldTable| {
            let options = list.first().map(|order| replicated(&order.options));
            held.table.partitions().is_empty() && options.as_ref() == Some(held.table.options())
        };
        let is_here = |order: &&ReplicaOrder| note.has(order) || note.has_inherited(order);
        if list.iter().any(is_here) || self.tables.get(name).is_some_and(is_void) {
            return Ok(());
        }
        self.remove_table(name)
    }

    fn log_broke(&self, name: &TableName) -> bool {
        let held = self.tables.get(name);
        held.is_some_and(|held| held.engine_log.failure().is_some())
    }

    /// Records that the replicas of a table are lost.
    fn forget(
        &mut self,
        name: &TableName,
        list: &TableOrders<'_>,
        problem: ReplicaProblem,
    ) -> Result<(), KeepError> {
        self.blame(list, problem);
        self.let_go(name);
        Ok(self.opener.forget_replicas(name)?)
    }

    fn blame(&mut self, list: &TableOrders<'_>, problem: ReplicaProblem) {
        for order in list.iter().filter(|order| !order.is_new) {
            self.problems.entry(place(order)).or_insert(problem);
        }
    }

    /// Opens a table, or creates it. Returns whether the table is on this node.
    fn hold(
        &mut self,
        name: &TableName,
        list: &TableOrders<'_>,
        is_from_memory: bool,
    ) -> Result<bool, KeepError> {
        if self.tables.contains_key(name) {
            return Ok(true);
        }
        let held = if self.opener.cache.is_live(name)? {
            match self.opener.open(name) {
                Err(KeepError::Lasts(problem, text)) if !is_from_memory => {
                    warn!(table = %name, text, "its replicas join their groups again as new peers");
                    self.forget(name, list, problem)?;
                    self.opener.open(name)?
                }
                Err(KeepError::Lasts(problem, text)) => {
                    self.blame(list, problem);
                    return Err(KeepError::Lasts(problem, text));
                }
                opened => opened?,
            }
        } else {
            let mut new = list.iter().filter(|order| order.is_new);
            match new.next() {
                Some(order) if !is_from_memory => self.opener.make(name, &order.options)?,
                _ => return Ok(false),
            }
        };
        self.commons.show(&held.table);
        self.tables.insert(name.clone(), held);
        Ok(true)
    }

    /// Returns whether all replicas run that exist and can run. A split may have just created one.
    fn all_run(&self, name: &TableName, list: &TableOrders<'_>) -> bool {
        let Some(held) = self.tables.get(name) else {
            return true;
        };
        let mut here = list.iter().filter(|order| {
            !order.is_new && held.note.has(order) && !self.problems.contains_key(&place(order))
        });
        here.all(|order| held.running.contains(&order.group))
    }

    /// Returns whether a local partition still has to be split to create an ordered replica.
    fn awaits_cut(&self, name: &TableName, list: &TableOrders<'_>) -> bool {
        let mut old = list.iter().filter(|order| !order.is_new);
        old.any(|order| self.comes_of_another(name, list, order))
    }

    /// Returns whether an ordered replica does not exist yet because its parent still has to be
    /// split. The parent may itself still have to result from a split.
    fn comes_of_another(
        &self,
        name: &TableName,
        list: &TableOrders<'_>,
        order: &ReplicaOrder,
    ) -> bool {
        let held = self.tables.get(name);
        let Some(held) = held.filter(|held| !held.note.has(order)) else {
            return false;
        };
        let is_left = |left: &&&ReplicaOrder| {
            let is_whole = !left.is_new && !self.problems.contains_key(&place(left));
            order.comes_from == Some(place(left)) && is_whole
        };
        let mut lefts = list.iter().filter(is_left);
        covers(held, order)
            || held.note.get().never_had(order)
            || lefts.any(|left| self.comes_of_another(name, list, left))
    }

    /// Returns the state of a table's replicas. Nothing is known of those of a table that was not
    /// opened yet.
    fn standings(
        &self,
        name: &TableName,
        list: &TableOrders<'_>,
    ) -> Vec<(ReplicaPlace, ReplicaStanding)> {
        let held = self.tables.get(name);
        let is_known = held.is_some() || !self.reported.contains_key(name);
        let standing = |order: &ReplicaOrder| {
            if let Some(problem) = self.problems.get(&place(order)) {
                return Some(ReplicaStanding::Unhealthy(*problem));
            }
            let held = held.filter(|held| held.note.has(order));
            match held {
                Some(held) if held.running.contains(&order.group) => {
                    Some(ReplicaStanding::Runs(Arc::downgrade(&held.engine_log)))
                }
                Some(held) => {
                    let start = held.starts.get(&order.group);
                    let term = start.map_or(0, |start| start.promise.term);
                    Some(ReplicaStanding::Made { term })
                }
                None if order.is_new || !is_known => None,
                None if self.comes_of_another(name, list, order) => None,
                None => Some(ReplicaStanding::Unhealthy(ReplicaProblem::Forgot)),
            }
        };
        let all = list.iter();
        all.filter_map(|order| Some((place(order), standing(order)?)))
            .collect()
    }
}

fn place(order: &ReplicaOrder) -> ReplicaPlace {
    (order.group, order.peer)
}

/// Returns whether another local partition contains the lower bound of an ordered one.
fn covers(held: &HeldTable, order: &ReplicaOrder) -> bool {
    let mut ranges = held.table.partitions().into_iter();
    let at = &order.bounds.lower;
    ranges.any(|range| range.id != order.partition && range.bounds.holds(at))
}
