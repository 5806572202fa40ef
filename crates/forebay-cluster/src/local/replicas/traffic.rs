//! How much is done in the replicas here, as the cluster is told: looked at now and then.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::live::PartitionTraffic;
use forebay_replica::GroupId;
use parking_lot::Mutex;

use crate::traffic::{ReplicaTraffic, TrafficMeter};

/// Replicas are looked at again after so long.
const AGAIN: Duration = Duration::from_secs(10);

/// What was seen of groups.
#[derive(Debug, Default)]
pub struct TrafficSeen(Mutex<TrafficLooks>);

#[derive(Debug, Default)]
struct TrafficLooks {
    last: Option<Duration>,
    meters: BTreeMap<GroupId, TrafficMeter>,
}

impl TrafficSeen {
    /// Looks at all that run here, if that is due. Of those that run no more nothing is kept.
    pub fn look(&self, now: Duration, counted: impl FnOnce() -> Vec<(GroupId, PartitionTraffic)>) {
        let mut looks = self.0.lock();
        let is_due = |last: Duration| now.saturating_sub(last) >= AGAIN;
        if !looks.last.is_none_or(is_due) {
            return;
        }
        looks.last = Some(now);
        let mut before = std::mem::take(&mut looks.meters);
        for (group, counted) in counted() {
            let mut meter = before.remove(&group).unwrap_or_default();
            meter.see(now, counted);
            looks.meters.insert(group, meter);
        }
    }

    /// `None`: nothing was done for long.
    pub fn of(&self, group: GroupId) -> Option<ReplicaTraffic> {
        let looks = self.0.lock();
        let rates = looks.meters.get(&group)?.rates();
        (!rates.is_none()).then_some(rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_looked_at_every_ten_seconds_and_forgotten_when_they_go() {
        let seen = TrafficSeen::default();
        let group = GroupId(3);
        let counted = |reads: u64| {
            let traffic = PartitionTraffic {
                reads,
                ..PartitionTraffic::default()
            };
            move || vec![(group, traffic)]
        };
        seen.look(Duration::from_secs(1), counted(0));
        seen.look(Duration::from_secs(6), || panic!("not due"));
        assert_eq!(seen.of(group), None);
        seen.look(Duration::from_secs(11), counted(1000));
        assert_eq!(seen.of(group).unwrap().minute.reads, 6000);
        seen.look(Duration::from_secs(21), Vec::new);
        assert_eq!(seen.of(group), None);
    }
}
