//! Clients that read through nodes.

use std::collections::BTreeMap;

use forebay_engine::{Bound, TableName};

use super::engine::covers;
use super::world::{Life, MS, World};
use crate::ids::NodeId;
use crate::model::Model;

/// A command that reads several places of several tables through one node.
struct Gather {
    by: Life,
    /// The tables' versions on the node when the command began.
    versions: BTreeMap<TableName, u64>,
    places: Vec<(TableName, u16)>,
    /// The versions that were read.
    read: Vec<(TableName, u64)>,
    is_second: bool,
}

impl World {
    /// Reads one place from all tables that a node answers.
    pub fn read_at(&mut self, at: usize) {
        let host = &self.hosts[at];
        let Some(process) = host.process.as_ref().filter(|process| !process.is_cut_off) else {
            return;
        };
        if host.paused {
            return;
        }
        let problem = process
            .active
            .iter()
            .find_map(|(table, serve)| self.wrong_read(at, table, serve.version));
        if let Some(problem) = problem {
            self.fail(problem);
        }
    }

    /// Returns why a node must not answer a version now.
    fn wrong_read(&self, at: usize, table: &TableName, version: u64) -> Option<String> {
        let name = &self.hosts[at].name;
        let model = self.store.current();
        let id = model
            .node_named(name)
            .map_or(NodeId(u32::MAX), |node| node.id);
        let reported = self.checks.reported.get(table).into_iter().flatten();
        let reported = reported.filter(|(_, excluded)| !excluded.contains(&id));
        let least = reported.map(|(revision, _)| *revision).max().unwrap_or(0);
        let mut log = self.checks.log.get(table).into_iter().flatten();
        let fits = log.any(|(revision, serving)| *revision >= least && *serving == Some(version));
        (!fits).then(|| {
            format!(
                "{name} answers version {version} of {table} after revision {least} was reported: {:?}",
                self.checks.log.get(table)
            )
        })
    }

    /// Runs a command of two tables and four places through a node.
    pub fn gather(&mut self, at: usize) {
        let by = self.life(at);
        self.begin_gather(by, false);
    }

    fn begin_gather(&mut self, by: Life, is_second: bool) {
        if self.hosts[by.host].paused {
            return;
        }
        let Some(process) = self.process(by).filter(|process| !process.is_cut_off) else {
            return;
        };
        let active = process.active.iter();
        let versions: BTreeMap<TableName, u64> = active
            .map(|(table, serve)| (table.clone(), serve.version))
            .collect();
        let mut places = Vec::new();
        for table in versions.keys().take(2) {
            places.extend((0..2).map(|_| (table.clone(), self.rng.below(16384) as u16)));
        }
        if !places.is_empty() {
            let gather = Gather {
                by,
                versions,
                places,
                read: Vec::new(),
                is_second,
            };
            self.ask_next(gather, 0);
        }
    }

    /// Asks the replicas of the next place one after the other.
    fn ask_next(&mut self, mut gather: Gather, replica: usize) {
        let by = gather.by;
        let Some((table, place)) = gather.places.last().cloned() else {
            return self.gathered(&gather);
        };
        let Some(process) = self.process(by) else {
            return;
        };
        let version = gather.versions[&table];
        let Some((_, model)) = process.node.follower().known() else {
            return;
        };
        let replicas = replicas(model, &table, place);
        let names: Vec<_> = replicas
            .iter()
            .filter_map(|id| Some(model.node(*id)?.name.clone()))
            .collect();
        if names.is_empty() {
            return self.count("dropped meanwhile");
        }
        let Some(name) = names.get(replica) else {
            let text = format!("{table}@{version} at {place} by {} from {names:?}", by.host);
            return self.not_read("no replica", &text);
        };
        let Some(target) = self.hosts.iter().position(|host| host.name == *name) else {
            return;
        };
        let path = (self.transit(by.host, target), self.transit(target, by.host));
        let host = &self.hosts[target];
        let is_there = host.process.is_some() && !host.paused;
        let (true, (Some(there), Some(back))) = (is_there, path) else {
            return self.after(300 * MS, move |world| world.ask_next(gather, replica + 1));
        };
        self.after(there + back, move |world| {
            let process = world.hosts[target].process.as_ref();
            let opened = process.and_then(|process| process.open.get(&(table.clone(), version)));
            let at = spot(&table, place);
            if opened.is_some_and(|ranges| ranges.iter().any(|range| covers(range, &at))) {
                gather.places.pop();
                gather.read.push((table, version));
                world.ask_next(gather, 0);
            } else if !gather.is_second {
                world.begin_gather(gather.by, true);
            } else {
                world.not_read("try again", "");
            }
        });
    }

    /// Without faults every command gets an answer, however much is moved.
    fn not_read(&mut self, why: &'static str, what: &str) {
        self.count(why);
        if self.is_faultless {
            self.fail(format!("a command was not answered: {why} {what}"));
        }
    }

    fn gathered(&mut self, gather: &Gather) {
        self.count("gathered");
        let mut seen: BTreeMap<&TableName, u64> = BTreeMap::new();
        for (table, version) in &gather.read {
            if *seen.entry(table).or_insert(*version) != *version {
                self.fail(format!("one command read two versions of {table}"));
            }
        }
    }
}

fn spot(table: &TableName, place: u16) -> Bound {
    match super::engine::order_of(table) {
        forebay_run::Order::Hashed => Bound::Slot(place),
        forebay_run::Order::Ordered => Bound::Key(vec![b'a' + (place % 26) as u8]),
    }
}

fn replicas(model: &Model, table: &TableName, place: u16) -> Vec<NodeId> {
    let Some(entry) = model.table(table) else {
        return Vec::new();
    };
    let at = spot(table, place);
    let ranges = model
        .layout_of(entry)
        .into_iter()
        .flat_map(|layout| layout.ranges());
    let range = ranges.take_while(|range| range.lower <= at).last();
    range.map_or(Vec::new(), |range| entry.of_list(&range.list).to_vec())
}
