//! The catalog's orders of replicas of live tables, and the reports about them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::TableName;
use forebay_replica::{GroupId, PeerId};

use super::Follower;
use crate::ids::NodeId;
use crate::measures::reporting::ReportQueue;
use crate::measures::reports::GroupReport;
use crate::message::{LeadersMark, LeadersReport};
use crate::model::Head;
use crate::node::events::FollowerAction;
use crate::routing::live::{ReplicaOrder, ReplicaOrders, missing, orders};
use crate::time::Now;

/// A follower's knowledge of replicas of live tables.
#[derive(Debug, Default)]
pub struct Replicas {
    pub reporting: ReportQueue<GroupReport>,
    pub leaders: BTreeMap<GroupId, NodeId>,
    pub mark: LeadersMark,
    ordered: Vec<ReplicaOrder>,
    missing: BTreeMap<TableName, usize>,
    /// Why local tables are not in their ordered state.
    pub troubles: Vec<String>,
    /// The head and the node of the last orders, and whether they were from memory.
    ordered_of: Option<(u64, NodeId, bool)>,
    /// The known orders are from before the start, and may not be the newest from that time.
    pub is_from_memory: bool,
    /// When the known head was last certain to be the newest.
    pub certain: Option<Duration>,
    /// The newest head at a moment when this node did not know it yet.
    named: Option<(u64, Duration)>,
}

impl Replicas {
    /// Records the leaders of groups. Returns whether any of that is news.
    pub fn lead(&mut self, news: LeadersReport) -> bool {
        self.mark = news.mark;
        let is_news = !news.leaders.is_empty();
        self.leaders.extend(news.leaders);
        is_news
    }
}

impl Follower {
    /// Returns whether local leaders may propose the catalog's changes: the known head is certain
    /// to be current. A node that is cut off proposes nothing.
    pub fn may_steer(&self, now: Now) -> bool {
        let lost = self.timing().heartbeat_lost();
        let is_certain = |certain: Duration| now.since(certain) < lost;
        self.loading.is_none() && self.replicas.certain.is_some_and(is_certain)
    }

    /// Records that the coordinator, or the catalog, named this head as the newest; none: the known
    /// one.
    pub(super) fn is_certain(&mut self, now: Now, head: Option<&Head>) {
        let known = self.known.as_ref().map(|(known, _)| known.revision);
        let unknown = head.filter(|head| known < Some(head.revision));
        self.replicas.named = unknown.map(|head| (head.revision, now.monotonic));
        if known.is_some() && unknown.is_none() {
            self.replicas.certain = Some(now.monotonic);
            self.replicas.is_from_memory = false;
        }
    }

    /// Records that a head is now known. It may be the one that was named before it was loaded.
    pub(super) fn is_certain_of(&mut self, revision: u64) {
        if let Some((_, at)) = self.replicas.named.take_if(|(named, _)| *named <= revision) {
            self.replicas.certain = self.replicas.certain.max(Some(at));
            self.replicas.is_from_memory = false;
        }
    }

    /// Returns the last known leaders of groups.
    pub fn leaders(&self) -> &BTreeMap<GroupId, NodeId> {
        &self.replicas.leaders
    }

    /// Orders replicas to be created, run, or removed if the head wants others than before.
    pub(super) fn order_replicas(&mut self, actions: &mut Vec<FollowerAction>) {
        let (Some((head, model)), Some(me)) = (&self.known, self.id) else {
            return;
        };
        let is_from_memory = self.replicas.is_from_memory;
        let of = Some((head.stamp, me, is_from_memory));
        if self.replicas.ordered_of == of {
            return;
        }
        let before = std::mem::replace(&mut self.replicas.ordered_of, of);
        let is_other = before.is_none_or(|(_, _, was)| was != is_from_memory);
        let (ordered, missing) = (orders(model, me), missing(model, me));
        let is_same = ordered == self.replicas.ordered && missing == self.replicas.missing;
        if is_same && !is_other {
            return;
        }
        let groups = model.group_ids();
        self.replicas
            .leaders
            .retain(|group, _| groups.contains(group));
        let place = |order: &ReplicaOrder| (order.group, order.peer);
        let now: BTreeSet<(GroupId, PeerId)> = ordered.iter().map(place).collect();
        let before = self.replicas.ordered.iter().map(place);
        let gone = before.filter(|place| !now.contains(place)).collect();
        self.replicas.ordered.clone_from(&ordered);
        self.replicas.missing.clone_from(&missing);
        let orders = ReplicaOrders {
            is_from_memory,
            revision: head.revision,
            replicas: ordered,
            missing,
            gone,
        };
        actions.push(FollowerAction::Replicas(Box::new(orders)));
    }
}
