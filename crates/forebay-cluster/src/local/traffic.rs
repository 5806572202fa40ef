//! Measures the traffic of local partitions now and then, for the reports to the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::live::PartitionTraffic;
use parking_lot::Mutex;

use crate::measures::traffic::{ReplicaTraffic, TrafficMeter};

/// The time after which partitions are measured again.
const AGAIN: Duration = Duration::from_secs(10);

/// The traffic of partitions, by their keys.
#[derive(Debug)]
pub struct TrafficSeen<P>(Mutex<TrafficSampler<P>>);

/// The traffic of a partition since it was opened on this node.
#[derive(Debug, Clone, Copy)]
pub struct CountedTraffic<P> {
    pub of: P,
    pub counted: PartitionTraffic,
    /// Whether the partition has all decided entries, as far as it knows.
    pub is_there: bool,
}

#[derive(Debug)]
struct TrafficSampler<P> {
    last: Option<Duration>,
    meters: BTreeMap<P, TrafficMeter>,
}

impl<P> Default for TrafficSeen<P> {
    fn default() -> Self {
        Self(Mutex::new(TrafficSampler {
            last: None,
            meters: BTreeMap::new(),
        }))
    }
}

impl<P: Ord> TrafficSeen<P> {
    /// Measures all local open partitions, if that is due. A partition counts from when it was
    /// first seen with all decided entries: a replica that catches up applies old writes.
    /// Partitions that are no longer on the node are forgotten.
    pub fn look(&self, now: Duration, counted: impl FnOnce() -> Vec<CountedTraffic<P>>) {
        let mut looks = self.0.lock();
        let is_due = |last: Duration| now.saturating_sub(last) >= AGAIN;
        if !looks.last.is_none_or(is_due) {
            return;
        }
        looks.last = Some(now);
        let mut before = std::mem::take(&mut looks.meters);
        for partition in counted() {
            let known = before.remove(&partition.of);
            let begun = partition.is_there.then(TrafficMeter::default);
            if let Some(mut meter) = known.or(begun) {
                meter.see(now, partition.counted);
                looks.meters.insert(partition.of, meter);
            }
        }
    }

    /// Returns `None` if there was no traffic for a long time.
    pub fn of(&self, partition: &P) -> Option<ReplicaTraffic> {
        let looks = self.0.lock();
        let rates = looks.meters.get(partition)?.rates();
        (!rates.is_none()).then_some(rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_sampled_every_ten_seconds_and_forgotten_with_its_replica() {
        let seen = TrafficSeen::default();
        let group = 3;
        let counted_at = |is_there: bool, reads: u64| {
            let counted = PartitionTraffic {
                reads,
                ..PartitionTraffic::default()
            };
            move || {
                vec![CountedTraffic {
                    of: group,
                    counted,
                    is_there,
                }]
            }
        };
        let counted = |reads| counted_at(true, reads);
        // It applies its log again.
        seen.look(Duration::ZERO, counted_at(false, 0));
        assert_eq!(seen.of(&group), None);
        let seen = TrafficSeen::default();
        seen.look(Duration::from_secs(1), counted(0));
        seen.look(Duration::from_secs(6), || panic!("not due"));
        assert_eq!(seen.of(&group), None);
        seen.look(Duration::from_secs(11), counted(1000));
        assert_eq!(seen.of(&group).unwrap().minute.reads, 6000);
        seen.look(Duration::from_secs(21), Vec::new);
        assert_eq!(seen.of(&group), None);
        seen.look(Duration::from_secs(31), counted_at(false, 0));
        seen.look(Duration::from_secs(41), counted_at(true, 90_000));
        assert_eq!(seen.of(&group), None, "it was applying its log");
        seen.look(Duration::from_secs(51), counted_at(false, 90_100));
        assert_eq!(seen.of(&group).unwrap().minute.reads, 600);
    }
}
