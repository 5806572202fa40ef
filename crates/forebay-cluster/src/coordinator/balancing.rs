//! Load that lies unevenly on the nodes for a while is spread without an operator, where one has
//! asked for that ([`CoordinatorSettings::keep_balanced`]).
//!
//! It is a plan as operators make them, and shown as one; each decision is told in words. One that
//! an operator asks for comes first: what is under way ends for it. Nothing is begun before the
//! hottest node has had a quarter more than the mean for several looks in a row, nor soon after
//! another plan: what a plan changes shows in the means only after a while. What is copied is
//! bounded by bytes an hour, so a plan that copies is followed by no longer pause than one that
//! does not.

use std::time::Duration;

use forebay_engine::TableName;

use super::{CoordinatorAction, CoordinatorSettings, Step};
use crate::model::{MoveStage, Rebalance, RequestId};
use crate::planning::{BalanceBounds, BalanceProposal, LoadPeak};

const LOOKS_EACH: Duration = Duration::from_secs(10);
/// So many looks in a row must show it.
const LOOKS: u32 = 3;
const HOT: f64 = 1.25;
/// Nodes that have less to do at the mean, in keys read a minute, are left alone.
const LEAST_LOAD: f64 = 3000.0;
/// Nothing is begun for so long after a plan: the means have two thirds of what it changes by then.
/// A load that shifts takes two or three plans, as the first one sees a mean of before and after.
const PAUSE: Duration = Duration::from_secs(30);
/// From so many plans of here within an hour on the pause is doubled with each.
const PLANS_AN_HOUR: u32 = 3;
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);
/// Nothing is begun for so long where no plan was worth it: to find that takes the coordinator's
/// time.
const PAUSE_WITHOUT_PLAN: Duration = Duration::from_secs(60);
/// Replicas that a plan copies at most.
const MOST_COPIES: usize = 20;
const HOUR_MS: u64 = 3600 * 1000;
/// How the requests begin whose plans are of here.
const REQUEST: &str = "balance-";

/// How far the coordinator is with balancing.
#[derive(Debug, Default)]
pub struct Balancing {
    looked: Option<Duration>,
    /// So many looks in a row have shown a hot node.
    hot_looks: u32,
    /// The table that a plan is being made for, and what came of it.
    asked: Option<TableName>,
    made: Option<Result<BalanceProposal, String>>,
    quiet_until: Option<Duration>,
    /// The plan whose end was told last.
    ended: Option<RequestId>,
    /// What was decided last, for people.
    pub reported: Option<String>,
    /// Until when nothing is begun, and why.
    pub waits: Option<String>,
}

impl Balancing {
    /// What came of a plan that was asked for.
    pub fn planned(&mut self, table: &TableName, made: Result<BalanceProposal, String>) {
        if self.asked.as_ref() == Some(table) {
            self.made = Some(made);
        }
    }
}

/// Whether a plan was begun here, and by nobody else.
fn is_own(plan: &Rebalance) -> bool {
    plan.request.0.starts_with(REQUEST)
}

impl Step<'_> {
    /// Looks at the load about each ten seconds; has a plan made where it is uneven, and begins it.
    pub fn keep_balanced(&mut self, settings: &CoordinatorSettings) {
        let Some(most_bytes_an_hour) = settings.keep_balanced else {
            return;
        };
        if self.model.work.moving().is_some() {
            let pause = self.pause();
            // What was planned meanwhile is about what was.
            (self.balancing.asked, self.balancing.made) = (None, None);
            self.balancing.waits = None;
            self.balancing.hot_looks = 0;
            self.balancing.quiet_until = Some(self.now.monotonic + pause);
            return;
        }
        if let Some(made) = self.balancing.made.take() {
            return self.begin_balancing(made);
        }
        let now = self.now.monotonic;
        self.notify_last_plan();
        self.balancing.waits = self.why_quiet();
        let has_looked = self.balancing.looked;
        let has_looked = has_looked.is_some_and(|looked| self.now.since(looked) < LOOKS_EACH);
        if has_looked || self.balancing.asked.is_some() {
            return;
        }
        self.balancing.looked = Some(now);
        self.look_at_load(most_bytes_an_hour);
    }

    /// How long nothing is begun after a plan: what must be changed again and again had better be
    /// left.
    fn pause(&self) -> Duration {
        let own = self.own_lately().take(PLANS_AN_HOUR as usize + 8).count() as u32;
        let doubled = own.saturating_sub(PLANS_AN_HOUR);
        LONGEST_PAUSE.min(PAUSE * 2_u32.pow(doubled))
    }

    /// Plans of here that began within the last hour.
    fn own_lately(&self) -> impl Iterator<Item = &Rebalance> {
        let since_ms = self.now.unix_ms.saturating_sub(HOUR_MS);
        let plans = self.model.work.rebalances.iter();
        plans.filter(move |plan| is_own(plan) && plan.begun_unix_ms >= since_ms)
    }

    /// Why nothing is begun now, if so.
    fn why_quiet(&self) -> Option<String> {
        let until = self.balancing.quiet_until;
        if let Some(until) = until.filter(|until| self.now.monotonic < *until) {
            let left = (until - self.now.monotonic).as_secs();
            return Some(format!("nothing is begun for {left} s, as after each plan"));
        }
        let left = self.follows_another()?;
        Some(format!(
            "nothing is begun for {} s: this coordinator is new, and a plan was begun within the last hour",
            left.as_secs()
        ))
    }

    /// Whether this coordinator is new, and another one's plan may just have ended; for how long
    /// that counts.
    fn follows_another(&self) -> Option<Duration> {
        let since_ms = self.now.unix_ms.saturating_sub(HOUR_MS);
        let last = self.model.work.rebalances.last();
        let here = self.now.since(self.took_over);
        let left = self.pause().checked_sub(here)?;
        let took_over_ms = self.now.unix_ms.saturating_sub(here.as_millis() as u64);
        let before = since_ms..took_over_ms;
        let is_recent = last.is_some_and(|plan| before.contains(&plan.begun_unix_ms));
        (is_recent && !left.is_zero()).then_some(left)
    }

    /// What became of the last plan, where it is one of here: it may have ended before its end, or
    /// be another coordinator's.
    fn notify_last_plan(&mut self) {
        let Some(last) = self
            .model
            .work
            .rebalances
            .last()
            .filter(|plan| is_own(plan))
        else {
            return;
        };
        let id = &last.request;
        if self.balancing.ended.as_ref() == Some(id) {
            return;
        }
        let reported = match (last.stage, &self.balancing.reported) {
            (MoveStage::Stopped, _) => {
                let reason = last.reason.as_deref().unwrap_or("it was ended");
                let (done, all) = (last.done, last.batches);
                format!("{id} ended with {done} of {all} batches done: {reason}")
            }
            (_, None) => {
                format!("{id} was carried out under the coordinator before, whose log says why")
            }
            (_, Some(reported)) => reported.clone(),
        };
        self.balancing.ended = Some(id.clone());
        self.balancing.reported = Some(reported);
    }

    fn look_at_load(&mut self, most_bytes_an_hour: u64) {
        let (survey, reads) = (self.survey_all(), self.batch_reads());
        let peak = LoadPeak::of(&self.model, &reads, &survey);
        let is_hot = |peak: &LoadPeak| peak.mean >= LEAST_LOAD && peak.ratio() > HOT;
        let Some(peak) = peak.filter(is_hot) else {
            self.balancing.hot_looks = 0;
            return;
        };
        self.balancing.hot_looks += 1;
        if self.balancing.hot_looks < LOOKS || self.balancing.waits.is_some() {
            return;
        }
        self.balancing.reported = Some(peak.words(&self.model));
        self.balancing.asked = Some(peak.table.clone());
        let bounds = BalanceBounds {
            most_copies: MOST_COPIES,
            most_bytes: most_bytes_an_hour.saturating_sub(self.copied_lately()),
        };
        self.actions.push(CoordinatorAction::Balance {
            table: peak.table,
            bounds,
            model: Box::new(self.model.clone()),
            reads,
            survey,
        });
    }

    /// What plans of here that began within the last hour copy. It is in the catalog, and so known
    /// to the next coordinator.
    fn copied_lately(&self) -> u64 {
        self.own_lately().map(|plan| plan.copied_bytes).sum()
    }

    fn begin_balancing(&mut self, made: Result<BalanceProposal, String>) {
        let seen = self.balancing.reported.take().unwrap_or_default();
        self.balancing.asked = None;
        self.balancing.hot_looks = 0;
        let begun = made.and_then(|made| {
            self.check_plan(&made.plan)?;
            let id = RequestId(format!("{REQUEST}{}", self.revision));
            self.begin_moving(&id, made.plan);
            Ok(made.words)
        });
        let pause = match begun {
            Ok(_) => self.pause(),
            Err(_) => PAUSE_WITHOUT_PLAN,
        };
        self.balancing.quiet_until = Some(self.now.monotonic + pause);
        self.balancing.reported = Some(match begun {
            Ok(words) => words,
            Err(why) => format!("{seen}; nothing was changed: {why}"),
        });
    }

    /// An operator wants something else carried out: what was begun here ends for it. Whether there
    /// is such a plan.
    pub fn give_way(&mut self) -> bool {
        let is_balancing = self.model.work.moving().is_some_and(is_own);
        if is_balancing {
            self.cancel_moving();
        }
        is_balancing
    }
}
