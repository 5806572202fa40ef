//! Chooses the number of partitions of a version, and their boundaries.

use forebay_engine::{Bound, Partition, RunRef};
use forebay_run::Order;
use forebay_run::hash::SLOTS;

use super::PushRequest;
use crate::sort::{Boundaries, CollectedRecords};

/// The bytes of keys and values in a partition, if the number of partitions is not given.
const PARTITION_BYTES: u64 = 64 << 20;
/// Tables below this many bytes are one partition.
const SMALL_BYTES: u64 = 4 << 20;
/// The fewest partitions of a larger table, so that they can be built in parallel and distributed
/// later.
const LEAST: u64 = 8;
const MOST: u64 = 256;

/// Returns the number of partitions for a table of this many bytes: a power of two up to 256.
pub fn by_size(bytes: u64) -> u32 {
    let least = if bytes < SMALL_BYTES { 1 } else { LEAST };
    bytes
        .div_ceil(PARTITION_BYTES)
        .next_power_of_two()
        .clamp(least, MOST) as u32
}

pub fn boundaries(request: &PushRequest, collected: &[CollectedRecords], bytes: u64) -> Boundaries {
    let partitions = request.partitions.unwrap_or_else(|| by_size(bytes)).max(1);
    if let Some(boundaries) = at_cuts(request, partitions) {
        return boundaries;
    }
    match request.order {
        Order::Hashed => Boundaries::slots(partitions),
        Order::Ordered => Boundaries::keys(partitions, collected),
    }
}

/// Returns the partitions of a table with required split points. Unless they are required always, a
/// small table is not split, nor is one whose number of partitions is given.
pub fn at_cuts(request: &PushRequest, partitions: u32) -> Option<Boundaries> {
    let is_cut = request.always_cut || (partitions > 1 && request.partitions.is_none());
    (is_cut && !request.cuts.is_empty()).then(|| cut(&request.cuts, partitions))
}

/// Returns partitions that begin at the split points. Hashed tables are split further between them,
/// to about this number.
fn cut(cuts: &[Bound], partitions: u32) -> Boundaries {
    let mut bounds = Vec::new();
    for (at, cut) in cuts.iter().enumerate() {
        let Bound::Slot(first) = cut else {
            bounds.push(cut.clone());
            continue;
        };
        let end = match cuts.get(at + 1) {
            Some(Bound::Slot(next)) => u32::from(*next),
            _ => SLOTS,
        };
        let (first, span) = (u32::from(*first), end - u32::from(*first));
        let parts = (u64::from(partitions) * u64::from(span)).div_ceil(u64::from(SLOTS)) as u32;
        let parts = parts.clamp(1, span);
        let begin =
            |part: u32| first + (u64::from(part) * u64::from(span) / u64::from(parts)) as u32;
        bounds.extend((0..parts).map(|part| Bound::Slot(begin(part) as u16)));
    }
    Boundaries::at(bounds)
}

/// Returns one partition that covers everything.
pub fn whole(order: Order) -> Boundaries {
    match order {
        Order::Hashed => Boundaries::slots(1),
        Order::Ordered => Boundaries::by_samples(1, Vec::new()),
    }
}

/// Returns the partitions of a table that is pushed as a whole, each with its one run.
pub fn of_runs(boundaries: &Boundaries, runs: Vec<Option<RunRef>>) -> Vec<Partition> {
    let part = |(at, run): (usize, Option<RunRef>)| {
        let runs = run.into_iter().collect();
        (boundaries.first_of(at).clone(), runs)
    };
    Partition::side_by_side(runs.into_iter().enumerate().map(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_begin_at_every_given_bound_and_evenly_between() {
        let cuts: Vec<Bound> = [0, 4096, 4097].map(Bound::Slot).to_vec();
        let boundaries = cut(&cuts, 8);
        let slots: Vec<u16> = boundaries
            .as_slice()
            .iter()
            .map(|bound| match bound {
                Bound::Slot(slot) => *slot,
                Bound::Key(_) => panic!("{bound}"),
            })
            .collect();
        assert!(slots.is_sorted() && cuts.iter().all(|cut| boundaries.as_slice().contains(cut)));
        assert_eq!((slots.len(), slots[1]), (2 + 1 + 6, 2048));
        let keys = ["", "g", "p"].map(|key| Bound::Key(key.as_bytes().to_vec()));
        assert_eq!(cut(&keys, 100).as_slice(), keys);
    }
}
