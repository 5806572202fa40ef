//! How much is done in the partitions here, as the cluster is told: looked at now and then.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::live::PartitionTraffic;
use parking_lot::Mutex;

use crate::traffic::{ReplicaTraffic, TrafficMeter};

/// Partitions are looked at again after so long.
const AGAIN: Duration = Duration::from_secs(10);

/// What was seen of partitions, by what names them.
#[derive(Debug)]
pub struct TrafficSeen<P>(Mutex<TrafficSampler<P>>);

/// What was done in a partition since it was opened here.
#[derive(Debug, Clone, Copy)]
pub struct CountedTraffic<P> {
    pub of: P,
    pub counted: PartitionTraffic,
    /// Whether it has all that is decided, as far as it knows.
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
    /// Looks at all that are open here, if that is due. A partition counts from when it was first
    /// seen to have all that is decided: what a replica applies before, from its log or another's,
    /// was done long ago. Of those that are here no more nothing is kept.
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

    /// `None`: nothing was done for long.
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
    fn replicas_are_looked_at_every_ten_seconds_and_forgotten_when_they_go() {
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
