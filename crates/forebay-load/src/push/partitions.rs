//! How many partitions a version gets, and where they begin.

use forebay_engine::{Partition, RunRef};
use forebay_run::Order;

use super::PushRequest;
use crate::sort::{Boundaries, Collected};

/// Bytes of keys and values that make a partition, when the number is not given.
const PARTITION_BYTES: u64 = 64 << 20;
/// Tables below this many bytes are one partition.
const SMALL_BYTES: u64 = 4 << 20;
/// From there on at least so many, that they can be built side by side and shared out later.
const LEAST: u64 = 8;
const MOST: u64 = 256;

/// The number of partitions for a table of so many bytes: a power of two up to 256.
pub fn by_size(bytes: u64) -> u32 {
    let least = if bytes < SMALL_BYTES { 1 } else { LEAST };
    bytes
        .div_ceil(PARTITION_BYTES)
        .next_power_of_two()
        .clamp(least, MOST) as u32
}

pub fn boundaries(request: &PushRequest, collected: &[Collected], bytes: u64) -> Boundaries {
    let partitions = request.partitions.unwrap_or_else(|| by_size(bytes)).max(1);
    match request.order {
        Order::Hashed => Boundaries::slots(partitions),
        Order::Ordered => Boundaries::keys(partitions, collected),
    }
}

/// One partition of everything.
pub fn whole(order: Order) -> Boundaries {
    match order {
        Order::Hashed => Boundaries::slots(1),
        Order::Ordered => Boundaries::by_samples(1, Vec::new()),
    }
}

/// The partitions of a table that is pushed whole, each of its one run.
pub fn of_runs(boundaries: &Boundaries, runs: Vec<Option<RunRef>>) -> Vec<Partition> {
    let part = |(at, run): (usize, Option<RunRef>)| {
        let runs = run.into_iter().collect();
        (boundaries.first_of(at).clone(), runs)
    };
    Partition::side_by_side(runs.into_iter().enumerate().map(part))
}
