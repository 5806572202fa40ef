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

/// What was done in a replica since its table was opened.
#[derive(Debug, Clone, Copy)]
pub struct CountedReplica {
    pub group: GroupId,
    pub counted: PartitionTraffic,
    /// Whether it has all that is decided, as far as it knows.
    pub is_there: bool,
}

#[derive(Debug, Default)]
struct TrafficLooks {
    last: Option<Duration>,
    meters: BTreeMap<GroupId, TrafficMeter>,
}

impl TrafficSeen {
    /// Looks at all that run here, if that is due. A replica counts from when it was first seen to
    /// have all that is decided: what it applies before, from its log or another's, was done long
    /// ago. Of those that run no more nothing is kept.
    pub fn look(&self, now: Duration, counted: impl FnOnce() -> Vec<CountedReplica>) {
        let mut looks = self.0.lock();
        let is_due = |last: Duration| now.saturating_sub(last) >= AGAIN;
        if !looks.last.is_none_or(is_due) {
            return;
        }
        looks.last = Some(now);
        let mut before = std::mem::take(&mut looks.meters);
        for replica in counted() {
            let known = before.remove(&replica.group);
            let begun = replica.is_there.then(TrafficMeter::default);
            if let Some(mut meter) = known.or(begun) {
                meter.see(now, replica.counted);
                looks.meters.insert(replica.group, meter);
            }
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
        let counted_at = |is_there: bool, reads: u64| {
            let counted = PartitionTraffic {
                reads,
                ..PartitionTraffic::default()
            };
            move || {
                vec![CountedReplica {
                    group,
                    counted,
                    is_there,
                }]
            }
        };
        let counted = |reads| counted_at(true, reads);
        // It applies its log again.
        seen.look(Duration::ZERO, counted_at(false, 0));
        assert_eq!(seen.of(group), None);
        let seen = TrafficSeen::default();
        seen.look(Duration::from_secs(1), counted(0));
        seen.look(Duration::from_secs(6), || panic!("not due"));
        assert_eq!(seen.of(group), None);
        seen.look(Duration::from_secs(11), counted(1000));
        assert_eq!(seen.of(group).unwrap().minute.reads, 6000);
        seen.look(Duration::from_secs(21), Vec::new);
        assert_eq!(seen.of(group), None);
        seen.look(Duration::from_secs(31), counted_at(false, 0));
        seen.look(Duration::from_secs(41), counted_at(true, 90_000));
        assert_eq!(seen.of(group), None, "it was applying its log");
        seen.look(Duration::from_secs(51), counted_at(false, 90_100));
        assert_eq!(seen.of(group).unwrap().minute.reads, 600);
    }
}
