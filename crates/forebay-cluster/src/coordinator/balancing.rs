//! Balances uneven load between nodes without an operator, if
//! [`CoordinatorSettings::keep_balanced`] is set.
//!
//! Each change is a plan like those of operators, and the status shows it as one. The coordinator
//! reports each decision in words. A request of an operator has priority: a balancing plan under
//! way ends for it.
//!
//! A plan begins only after the hottest node has had a quarter more than the mean load in several
//! looks in a row. After any plan the coordinator pauses, because the measured means show a plan's
//! effect only after a while. The bytes copied an hour are limited, so a plan that copies needs no
//! longer pause than one that does not.

use std::time::Duration;

use forebay_engine::TableName;

use super::{CoordinatorAction, CoordinatorSettings, Step};
use crate::model::{MoveStage, Rebalance, RequestId};
use crate::planning::{BalanceBounds, BalanceProposal, LoadPeak};

const LOOKS_EACH: Duration = Duration::from_secs(10);
/// The number of consecutive looks that must show a hot node.
const LOOKS: u32 = 3;
const HOT: f64 = 1.25;
/// The least mean load of the nodes, in keys read a minute, at which the coordinator balances.
const LEAST_LOAD: f64 = 3000.0;
/// The pause after a plan. By then the means contain two thirds of the plan's effect. A load that
/// shifts takes two or three plans, because the first plan uses a mean of the loads before and
/// after.
const PAUSE: Duration = Duration::from_secs(30);
/// The number of balancing plans within an hour beyond which each further plan doubles the pause.
const PLANS_AN_HOUR: u32 = 3;
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);
/// The pause if no plan was worthwhile. The search for one takes the coordinator's time.
const PAUSE_WITHOUT_PLAN: Duration = Duration::from_secs(60);
/// The most replicas that one plan copies.
const MOST_COPIES: usize = 20;
const HOUR_MS: u64 = 3600 * 1000;
/// The prefix of the request ids of balancing plans.
const REQUEST: &str = "balance-";

/// The state of balancing in one coordinator.
#[derive(Debug, Default)]
pub struct Balancing {
    looked: Option<Duration>,
    /// The number of consecutive looks that have shown a hot node.
    hot_looks: u32,
    /// The table for which a plan is being made, and the result.
    asked: Option<TableName>,
    made: Option<Result<BalanceProposal, String>>,
    quiet_until: Option<Duration>,
    /// The last plan whose end was reported.
    ended: Option<RequestId>,
    /// The last decision, for people.
    pub reported: Option<String>,
    /// Why no plan begins now, and for how long.
    pub waits: Option<String>,
}

impl Balancing {
    /// Stores the result for a plan that was requested.
    pub fn planned(&mut self, table: &TableName, made: Result<BalanceProposal, String>) {
        if self.asked.as_ref() == Some(table) {
            self.made = Some(made);
        }
    }
}

/// Returns whether balancing began the plan, and not an operator.
fn is_own(plan: &Rebalance) -> bool {
    plan.request.0.starts_with(REQUEST)
}

impl Step<'_> {
    /// Examines the load about every 10 s. If it is uneven, this has a plan made and begins it.
    pub fn keep_balanced(&mut self, settings: &CoordinatorSettings) {
        let Some(most_bytes_an_hour) = settings.keep_balanced else {
            return;
        };
        if self.model.work.moving().is_some() {
            let pause = self.pause();
            // A plan made in the meantime is for an earlier state of the cluster.
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

    /// Returns the pause after a plan. It grows if plans are needed again and again.
    fn pause(&self) -> Duration {
        let own = self.own_lately().take(PLANS_AN_HOUR as usize + 8).count() as u32;
        let doubled = own.saturating_sub(PLANS_AN_HOUR);
        LONGEST_PAUSE.min(PAUSE * 2_u32.pow(doubled))
    }

    /// Returns the balancing plans that began within the last hour.
    fn own_lately(&self) -> impl Iterator<Item = &Rebalance> {
        let since_ms = self.now.unix_ms.saturating_sub(HOUR_MS);
        let plans = self.model.work.rebalances.iter();
        plans.filter(move |plan| is_own(plan) && plan.begun_unix_ms >= since_ms)
    }

    /// Returns why no plan may begin now, if so.
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

    /// If this coordinator is new, and a plan of an earlier one may have just ended: returns the
    /// rest of the pause.
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

    /// Reports the end of the last plan, if it was a balancing plan. It may have stopped early, or
    /// may have begun under another coordinator.
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

    /// Returns the bytes that balancing plans of the last hour copy. The catalog has them, so the
    /// next coordinator knows them too.
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

    /// Ends the balancing plan under way, so that an operator's plan can begin. Returns whether
    /// there was one.
    pub fn give_way(&mut self) -> bool {
        let is_balancing = self.model.work.moving().is_some_and(is_own);
        if is_balancing {
            self.cancel_moving();
        }
        is_balancing
    }
}
