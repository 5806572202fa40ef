//! Checks of a model before a coordinator writes it, alone and against the model before it.
//!
//! The checks run in builds with assertions, before anything is written. Work that continues from a
//! wrong model makes it worse.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{Bound, TableName};
use forebay_replica::GroupId;

use super::rollout::Phase;
use super::{
    GroupEntry, Layout, LayoutName, LoadStage, Model, MoveStage, Rebalance, TableEntry, TableGroups,
};

impl Model {
    /// Checks that nothing goes backwards, that no number is used twice, and that everything that
    /// is named exists.
    pub fn check_next(&self, before: &Self) {
        if cfg!(debug_assertions) {
            self.check_numbers(before);
            self.check_nodes();
            self.check_rollouts(before);
            self.check_plans(before);
            self.check_loads(before);
            for (name, table) in self.all_tables() {
                self.check_table(name, table);
            }
            for (name, layout) in &self.layouts {
                if before.layouts.get(name) != Some(layout) {
                    layout.check();
                }
            }
            self.check_groups(before);
        }
    }

    fn check_numbers(&self, before: &Self) {
        let numbers = |model: &Self| {
            let work = &model.work;
            [
                work.next_rollout,
                u64::from(work.next_node),
                work.next_group,
                work.next_load,
            ]
        };
        debug_assert!(
            numbers(before)
                .iter()
                .zip(numbers(self))
                .all(|(before, now)| *before <= now),
            "the next numbers were {:?}, and are {:?}",
            numbers(before),
            numbers(self)
        );
    }

    fn check_nodes(&self) {
        let mut names = BTreeSet::new();
        for node in self.all_nodes() {
            debug_assert!(
                node.id.0 < self.work.next_node,
                "node {} has a number that is still to be given",
                node.id
            );
            let is_new = names.insert(&node.name);
            debug_assert!(is_new, "two nodes are called {}", node.name);
        }
    }

    fn check_rollouts(&self, before: &Self) {
        for (id, rollout) in &self.work.rollouts {
            let phase = rollout.phase;
            debug_assert!(
                *id == rollout.id && id.0 < self.work.next_rollout,
                "rollout {id} calls itself {}, and the next one is {}",
                rollout.id,
                self.work.next_rollout
            );
            debug_assert_eq!(
                rollout.committed.is_some(),
                !matches!(phase, Phase::Preparing | Phase::Aborted),
                "rollout {id} is {phase:?}, and was committed, or was not"
            );
            debug_assert_eq!(
                rollout.reverted.is_some(),
                matches!(phase, Phase::Reverting | Phase::Reverted),
                "rollout {id} is {phase:?}, and was taken back, or was not"
            );
            debug_assert!(
                rollout
                    .reverted
                    .is_none_or(|reverted| rollout.committed < Some(reverted)),
                "rollout {id} was committed in {:?}, and taken back in {:?}",
                rollout.committed,
                rollout.reverted
            );
            let was = before.work.rollouts.get(id).map(|before| before.phase);
            debug_assert!(
                was.map_or(!rollout.phase.is_committed(), |was| was.may_become(phase)),
                "rollout {id} was {was:?}, and is {phase:?}"
            );
            for table in rollout.tables.keys().filter(|_| !phase.is_over()) {
                debug_assert!(
                    self.table(table)
                        .is_none_or(|entry| entry.rollout == Some(*id)),
                    "rollout {id} is under way, and table {table} takes part in {:?}",
                    self.table(table).and_then(|entry| entry.rollout)
                );
            }
        }
    }

    fn check_plans(&self, before: &Self) {
        let plans = &self.work.rebalances;
        let is_moving = self.work.moving().is_some();
        debug_assert_eq!(
            self.plan.is_some(),
            is_moving,
            "a plan is carried out, or none, and what it moves is there, or is not"
        );
        debug_assert!(
            plans.iter().rev().skip(1).all(|plan| plan.stage.is_over()),
            "two plans are carried out at a time: {plans:?}"
        );
        for plan in plans {
            debug_assert!(
                plan.done <= plan.batches && plan.done_bytes <= plan.copied_bytes,
                "plan {} is beyond its end: {plan:?}",
                plan.request
            );
            let mut known = before.work.rebalances.iter();
            let known = known.find(|known| known.request == plan.request);
            debug_assert!(
                known.is_none_or(|known| known.may_become(plan)),
                "plan {} goes from {known:?} to {plan:?}",
                plan.request
            );
        }
        let mut ranges = self.layouts.values().flat_map(Layout::ranges);
        debug_assert!(
            is_moving || ranges.all(|range| range.next.is_none() && range.before.is_none()),
            "no plan is carried out, and a range is on the move"
        );
        debug_assert!(
            is_moving
                || self
                    .all_tables()
                    .all(|(_, table)| table.replicas_held.is_none()),
            "no plan is in progress, but the replicas of a table change"
        );
    }

    fn check_loads(&self, before: &Self) {
        let loads = &self.work.loads;
        debug_assert!(
            loads.is_sorted_by(|one, next| one.number < next.number)
                && loads
                    .last()
                    .is_none_or(|last| last.number < self.work.next_load),
            "the numbers of loads do not rise up to {}: {loads:?}",
            self.work.next_load
        );
        for load in loads {
            let table = self.table(&load.table);
            let mut known = before.work.loads.iter();
            let was = known.find(|known| known.number == load.number);
            let was = was.map_or(LoadStage::Fetching, |known| known.stage);
            let is_dropped = table != before.table(&load.table);
            debug_assert!(
                was.may_become(load.stage) || is_dropped && load.stage == LoadStage::Stopped,
                "load {} was {was:?}, and is {:?}",
                load.number,
                load.stage
            );
            let mut others = loads.iter().filter(|other| other.table == load.table);
            debug_assert!(
                load.stage.is_over()
                    || others.all(|other| other.stage.is_over() || other.number == load.number),
                "load {} of table {} is not the only one under way",
                load.number,
                load.table
            );
        }
    }

    fn check_table(&self, name: &TableName, table: &TableEntry) {
        debug_assert!(
            self.layouts.contains_key(&table.layout),
            "table {name} has layout {}, which there is not",
            table.layout
        );
        debug_assert!(
            !table.by_range || table.layout == LayoutName::Table(name.clone()),
            "ranges of table {name} are held by their lists, and others have them too"
        );
        let versions = || table.history.iter().chain(&table.serving);
        debug_assert!(
            versions().collect::<BTreeSet<_>>().len() == versions().count(),
            "table {name} serves {:?}, and served {:?}: one of them twice",
            table.serving,
            table.history
        );
        debug_assert_eq!(
            table.live.is_some(),
            self.groups.contains_key(name),
            "table {name} is a live one, or has groups, and not both"
        );
        debug_assert!(
            table.live.is_none() || (table.serving, table.rollout) == (None, None),
            "live table {name} has versions"
        );
        let rollout = table.rollout.map(|id| self.work.rollouts.get(&id));
        debug_assert!(
            rollout.is_none_or(|rollout| rollout.is_some_and(|rollout| {
                !rollout.phase.is_over() && rollout.tables.contains_key(name)
            })),
            "table {name} takes part in a rollout that is over, or is not its own: {rollout:?}"
        );
    }

    fn check_groups(&self, before: &Self) {
        let ids = self.group_ids();
        let splits = self
            .all_groups()
            .filter_map(|(_, group)| group.split.as_ref());
        let children = splits.map(|split| split.children.len());
        debug_assert_eq!(
            ids.len(),
            self.all_groups().count() + children.sum::<usize>(),
            "two partitions have one group"
        );
        debug_assert!(
            ids.last().is_none_or(|last| last.0 < self.work.next_group),
            "group {:?} has a number that is still to be given",
            ids.last()
        );
        for (name, groups) in &self.groups {
            let known = before.groups.get(name);
            if known != Some(groups) {
                groups.check(name);
                let known = known.into_iter().flat_map(TableGroups::all);
                let known: BTreeMap<GroupId, &GroupEntry> =
                    known.map(|group| (group.group, group)).collect();
                for group in groups.all() {
                    group.check();
                    if let Some(known) = known.get(&group.group) {
                        group.check_next(known);
                    }
                }
            }
        }
    }
}

impl Phase {
    fn is_committed(self) -> bool {
        !matches!(self, Phase::Preparing | Phase::Aborted)
    }

    /// Returns whether a rollout may be in this phase next.
    fn may_become(self, next: Self) -> bool {
        self == next
            || matches!(
                (self, next),
                (Phase::Preparing, Phase::Committed | Phase::Aborted)
                    | (Phase::Committed, Phase::Confirmed | Phase::Reverting)
                    | (Phase::Reverting, Phase::Reverted)
            )
    }
}

impl LoadStage {
    /// Returns whether a load may be in this stage next.
    fn may_become(self, next: Self) -> bool {
        self == next
            || matches!(
                (self, next),
                (LoadStage::Fetching, LoadStage::Adding | LoadStage::Stopped)
                    | (LoadStage::Adding, LoadStage::Done)
            )
    }
}

impl Rebalance {
    /// Returns whether a plan may be in this state next: with more batches done, or further with
    /// the present one.
    fn may_become(&self, next: &Self) -> bool {
        let place = |plan: &Self| (plan.done, plan.stage.rank());
        match self.stage.is_over() {
            true => self.stage == next.stage && self.done == next.done,
            false => place(self) <= place(next) && (!self.cancelled || next.cancelled),
        }
    }
}

impl MoveStage {
    fn rank(self) -> u8 {
        match self {
            MoveStage::Between => 0,
            MoveStage::Copying { .. } => 1,
            MoveStage::Changed { .. } => 2,
            MoveStage::Releasing { .. } => 3,
            MoveStage::Done => 4,
            MoveStage::Stopped => 5,
        }
    }
}

impl Layout {
    /// Checks that the ranges are adjacent from the start of the order, and that the nodes of each
    /// list are distinct.
    fn check(&self) {
        let begins = self.ranges().next().map(|range| &range.lower);
        debug_assert!(
            begins.is_none_or(is_first),
            "a layout begins at {begins:?}, and not where its order does"
        );
        debug_assert!(
            self.ranges()
                .is_sorted_by(|one, next| one.lower < next.lower),
            "the ranges of a layout do not rise"
        );
        for range in self.ranges() {
            let lists = [
                Some(&range.list),
                range.next.as_ref(),
                range.before.as_ref(),
            ];
            for list in lists.into_iter().flatten() {
                debug_assert!(
                    !list.is_empty() && list.iter().collect::<BTreeSet<_>>().len() == list.len(),
                    "what begins at {} is held by {list:?}",
                    range.lower
                );
            }
        }
    }
}

pub(super) fn is_first(bound: &Bound) -> bool {
    match bound {
        Bound::Slot(slot) => *slot == 0,
        Bound::Key(key) => key.is_empty(),
    }
}
