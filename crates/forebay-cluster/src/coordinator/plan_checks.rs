//! Checks of requested plans, with the reasons to refuse them.

use std::collections::BTreeSet;

use super::Step;
use super::requests::{Refusal, TakenUp, in_bounds};
use crate::formats::{has_own_layouts, has_plans};
use crate::ids::NodeId;
use crate::model::{Model, MoveBatch, MovePlan, Outcome, RequestId};
use crate::planning::{carry_out, check_live_lists, fetching, fits_all, holders};
use crate::routing::layouts::longest;
use crate::routing::version::SPARE_BYTES;

impl Step<'_> {
    pub fn take_rebalance(&mut self, id: &RequestId, plan: &MovePlan) -> Result<TakenUp, Refusal> {
        match plan.has_own() {
            true => has_own_layouts(self.format)?,
            false => has_plans(self.format)?,
        }
        if self.give_way() {
            return Ok(TakenUp::Later);
        }
        if let Some(moving) = self.model.work.moving() {
            return Err(Refusal::Busy(format!(
                "another plan is carried out, {} of {} batches are done: wait for it (forebay cluster watch), or end it \
                 (forebay cluster cancel {})",
                moving.done, moving.batches, moving.request
            )));
        }
        self.check_plan(plan)?;
        self.begin_moving(id, plan.clone());
        Ok(TakenUp::Answered(Outcome::Rebalance))
    }

    /// Checks that a plan fits the cluster as it is, and can be carried out.
    pub fn check_plan(&self, plan: &MovePlan) -> Result<(), String> {
        fits_all(&self.model, &plan.batches)?;
        for batch in &plan.batches {
            let mut splits = batch.splits.iter();
            splits.try_for_each(|split| self.check_split(&plan.goal, split))?;
        }
        let mut after = self.model.clone();
        for batch in &plan.batches {
            let mut fetching = fetching(&after, batch).into_iter();
            fetching.try_for_each(|node| self.check_up(node))?;
            carry_out(&mut after, batch);
        }
        check_live_lists(&self.model, &after)?;
        let holding = holders(&after);
        if !holding.is_disjoint(&plan.goal.drained()) {
            return Err("tables have come since the plan was made: make a new one".to_owned());
        }
        for batch in &plan.batches {
            check_lists(&after, batch, holding.len())?;
        }
        let mut copies = plan.copies.iter();
        copies.try_for_each(|(node, bytes)| {
            self.check_up(*node)?;
            self.check_room(*node, *bytes)
        })
    }

    fn check_up(&self, node: NodeId) -> Result<(), String> {
        match self.is_alive(node) {
            true => Ok(()),
            false => Err(format!(
                "node {} is to hold more, and is down: start it, or make a plan without it",
                self.model.node_name(node)
            )),
        }
    }

    fn check_room(&self, node: NodeId, bytes: u64) -> Result<(), String> {
        let Some(entry) = self.model.node(node) else {
            return Err(format!(
                "the plan names node {node}, which was removed from the cluster"
            ));
        };
        let name = &entry.name;
        let received = self.received.get(&node);
        match received.and_then(|received| received.room.free_bytes) {
            Some(free) if free < bytes.saturating_add(SPARE_BYTES) => Err(format!(
                "node {name} would fetch {bytes} bytes, but {free} bytes are free, and \
                 {SPARE_BYTES} must stay free: make room, or add nodes to the cluster"
            )),
            _ => Ok(()),
        }
    }
}

/// Checks the lists of a plan, which a client made and which may be wrong. No list may become
/// shorter than its tables want, as far as there are nodes. `after`: the cluster when the plan is
/// carried out.
fn check_lists(after: &Model, batch: &MoveBatch, holders: usize) -> Result<(), String> {
    for change in &batch.lists {
        let distinct: BTreeSet<&NodeId> = change.new.iter().collect();
        if change.new.is_empty() || distinct.len() != change.new.len() {
            return Err("the plan has a list without nodes, or with a node twice".to_owned());
        }
        let wanted = longest(after, &change.layout).min(holders);
        if change.new.len() < wanted.min(change.old.len()) {
            return Err(format!(
                "the plan leaves the range {} with {} nodes, but tables want {wanted}: make a new \
                 plan",
                change.bounds,
                change.new.len()
            ));
        }
    }
    let mut replicas = batch.replicas.iter();
    replicas.try_for_each(|change| in_bounds(change.to).map(drop))
}
