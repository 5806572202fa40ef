//! Replicas of live tables: what the catalog wants here, and what is told of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::TableName;
use forebay_replica::{GroupId, PeerId};

use super::Follower;
use crate::ids::NodeId;
use crate::live::{ReplicaOrder, ReplicaOrders, missing, orders};
use crate::message::{LeadersMark, LeadersReport};
use crate::model::Head;
use crate::node::events::FollowerAction;
use crate::reporting::ReportQueue;
use crate::reports::GroupReport;
use crate::time::Now;

/// What a follower knows of the replicas of live tables.
#[derive(Debug, Default)]
pub struct Replicas {
    pub reporting: ReportQueue<GroupReport>,
    pub leaders: BTreeMap<GroupId, NodeId>,
    pub mark: LeadersMark,
    ordered: Vec<ReplicaOrder>,
    missing: BTreeMap<TableName, usize>,
    /// What keeps tables here from being as they are to be.
    pub troubles: Vec<String>,
    /// The head and the node by which they were ordered, and whether from memory.
    ordered_of: Option<(u64, NodeId, bool)>,
    /// What is known is what was known before the start, and maybe not the newest of that.
    pub is_from_memory: bool,
    /// When the newest head was certain to be the one that is known here.
    pub certain: Option<Duration>,
    /// The newest head at a moment, which was not known here then.
    named: Option<(u64, Duration)>,
}

impl Replicas {
    /// Takes note of who leads. Returns whether it is news.
    pub fn lead(&mut self, news: LeadersReport) -> bool {
        self.mark = news.mark;
        let is_news = !news.leaders.is_empty();
        self.leaders.extend(news.leaders);
        is_news
    }
}

impl Follower {
    /// Whether the leaders of groups here may propose what the catalog wants: it is known what that
    /// is by now. A node that is cut off proposes nothing.
    pub fn may_steer(&self, now: Now) -> bool {
        let lost = self.timing().heartbeat_lost();
        let is_certain = |certain: Duration| now.since(certain) < lost;
        self.loading.is_none() && self.replicas.certain.is_some_and(is_certain)
    }

    /// The coordinator, or the catalog, names this head; none: the one that is known here.
    pub(super) fn is_certain(&mut self, now: Now, head: Option<&Head>) {
        let known = self.known.as_ref().map(|(known, _)| known.revision);
        let unknown = head.filter(|head| known < Some(head.revision));
        self.replicas.named = unknown.map(|head| (head.revision, now.monotonic));
        if known.is_some() && unknown.is_none() {
            self.replicas.certain = Some(now.monotonic);
            self.replicas.is_from_memory = false;
        }
    }

    /// A head is known by now, and may be the one that was named before it was read.
    pub(super) fn is_certain_of(&mut self, revision: u64) {
        if let Some((_, at)) = self.replicas.named.take_if(|(named, _)| *named <= revision) {
            self.replicas.certain = self.replicas.certain.max(Some(at));
            self.replicas.is_from_memory = false;
        }
    }

    /// Who led groups when last heard of.
    pub fn leaders(&self) -> &BTreeMap<GroupId, NodeId> {
        &self.replicas.leaders
    }

    /// Has replicas made, run, or removed where the head wants others than before.
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
