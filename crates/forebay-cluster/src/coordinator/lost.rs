//! Replaces nodes that stay down, if [`CoordinatorSettings::replace_after`] is set.
//!
//! After that time other nodes get the partitions of the lost nodes. The change is a plan like
//! those of operators, and the status shows it as one. Of the nodes that
//! have partitions, one may be down, or up to a fifth of them. If more are down, the coordinator
//! does not begin the plan: then something else is wrong, and copies would make it worse.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{CoordinatorAction, CoordinatorSettings, Step};
use crate::ids::NodeId;
use crate::model::{MovePlan, PlanGoal, RequestId};
use crate::planning::holders;

/// The pause before another try, if a plan could not be made or was not carried out.
const AGAIN: Duration = Duration::from_secs(10 * 60);

/// The state of the replacement of lost nodes.
#[derive(Debug, Default)]
pub struct Replacing {
    /// The plan that is being made, since when, and the result.
    asked: Option<(PlanGoal, Duration)>,
    made: Option<MovePlan>,
    /// Why there is no plan.
    pub problem: Option<String>,
    /// The nodes for which a plan was last begun, and when.
    begun: Option<(BTreeSet<NodeId>, Duration)>,
}

impl Replacing {
    /// Stores the result for a plan that was requested.
    pub fn planned(&mut self, goal: &PlanGoal, plan: Result<MovePlan, String>) {
        if self.asked.as_ref().is_none_or(|(asked, _)| asked != goal) {
            return;
        }
        match plan {
            Ok(plan) => self.made = Some(plan),
            Err(problem) => self.problem = Some(problem),
        }
    }
}

impl Step<'_> {
    /// Has a plan made for nodes that are down for too long, and begins it.
    pub fn replace_lost(&mut self, settings: &CoordinatorSettings) {
        let Some(after) = settings.replace_after else {
            return;
        };
        let lost = self.lost(after);
        if lost.is_empty() || self.model.work.moving().is_some() {
            *self.replacing = Replacing {
                begun: self.replacing.begun.take(),
                ..Replacing::default()
            };
            return;
        }
        let goal = PlanGoal::Drain(lost.clone());
        if let Some(plan) = self.replacing.made.take_if(|plan| plan.goal == goal) {
            return self.begin_replacing(lost, plan);
        }
        let is_waiting = |since: Duration| self.now.since(since) < AGAIN;
        let is_asked = self.replacing.asked.as_ref();
        let is_asked = is_asked.is_some_and(|(asked, since)| *asked == goal && is_waiting(*since));
        let is_begun = self.replacing.begun.as_ref();
        let is_begun = is_begun.is_some_and(|(nodes, since)| *nodes == lost && is_waiting(*since));
        if !is_asked && !is_begun {
            self.replacing.asked = Some((goal.clone(), self.now.monotonic));
            let (model, survey) = (Box::new(self.model.clone()), self.survey_all());
            let plan = CoordinatorAction::Plan {
                goal,
                model,
                survey,
            };
            self.actions.push(plan);
        }
    }

    fn begin_replacing(&mut self, lost: BTreeSet<NodeId>, plan: MovePlan) {
        match self.check_plan(&plan) {
            Ok(()) => {
                let names: Vec<String> = lost.iter().map(ToString::to_string).collect();
                let id = format!("replace-{}-{}", names.join("-"), self.revision);
                self.replacing.begun = Some((lost, self.now.monotonic));
                self.begin_moving(&RequestId(id), plan);
            }
            Err(problem) => self.replacing.problem = Some(problem),
        }
    }

    /// Returns the nodes that have partitions and have been down for so long. If too many nodes are
    /// down, it returns none.
    fn lost(&self, after: Duration) -> BTreeSet<NodeId> {
        if self.model.all_nodes().all(|node| node.is_up()) {
            return BTreeSet::new();
        }
        let holding = holders(&self.model);
        let away: BTreeSet<NodeId> = holding
            .iter()
            .filter(|node| !self.is_alive(**node))
            .copied()
            .collect();
        if away.len() > (holding.len() / 5).max(1) {
            return BTreeSet::new();
        }
        let is_paused = |node: &NodeId| {
            let entry = self.model.node(*node);
            entry.is_some_and(|entry| entry.paused_until_unix_ms.is_some())
        };
        let lost = away.into_iter().filter(|node| !is_paused(node));
        lost.filter(|node| self.silent_for(*node) >= after)
            .collect()
    }
}
