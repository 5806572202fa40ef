//! Computes how many replicas each partition gets: the replication vector R.
//!
//! There are two objectives. Both are solved exactly by assigning one replica at a time:
//!
//! - `minmax` (the default): the hottest load per replica, max load_i / R_i, is as small as it can
//!   be. Each replica goes to the partition that is hottest at that moment. Without an upper bound
//!   this is Adams' apportionment.
//! - `l1`: the paper's sum over i of |R_i / S - load_i / total load|. The gain of one more replica
//!   is 1/S up to the partition's fair share. It falls in the step that crosses the share, and is
//!   -1/S from there. So it never rises again, and the greedy algorithm is exact. Most steps tie. A
//!   tie goes to the partition that is hottest per replica, then to the one with fewer replicas,
//!   then to the lower number. Of all L1 optima, that gives one whose hottest replica is coolest.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::str::FromStr;

use crate::InputError;

/// The objective of the replication vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Objective {
    /// The least hottest load per replica.
    #[default]
    MinMax,
    /// The paper's least sum of differences between shares of replicas and shares of load.
    L1,
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "minmax" => Ok(Self::MinMax),
            "l1" => Ok(Self::L1),
            _ => Err(format!("'{text}' is no objective; there are minmax and l1")),
        }
    }
}

/// The limits on the replicas of a partition, and on their total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub min: usize,
    pub max: usize,
    pub total: usize,
}

impl Bounds {
    /// Refuses bounds that no vector of `partitions` entries can meet.
    pub fn check(&self, partitions: usize) -> Result<(), InputError> {
        if self.min > self.max {
            let what = format!("{} is more than the most replicas, {}", self.min, self.max);
            return Err(InputError::new("min", what));
        }
        let least = partitions.saturating_mul(self.min);
        if self.total < least {
            let what = format!(
                "{} replicas are fewer than {partitions} partitions x {} need; add slots or nodes, \
                 or lower `min`",
                self.total, self.min
            );
            return Err(InputError::new("total", what));
        }
        if self.total > partitions.saturating_mul(self.max) {
            let what = format!(
                "{} replicas are more than {partitions} partitions x {} can take; lower `total` or \
                 raise `max`",
                self.total, self.max
            );
            return Err(InputError::new("total", what));
        }
        Ok(())
    }
}

/// The bytes that all replicas together may take, and those of each partition.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaBudget<'a> {
    pub bytes: u128,
    pub sizes: &'a [u64],
}

/// Returns the replication vector for `loads` (finite, none negative).
pub fn replication_vector(
    loads: &[f64],
    bounds: Bounds,
    objective: Objective,
) -> Result<Vec<usize>, InputError> {
    within_budget(loads, bounds, objective, None)
}

/// Returns the replication vector within a number of bytes. A partition whose next replica is too
/// large for the rest gets no more; the others continue. (With bytes this is a knapsack, and the
/// greedy algorithm is not exact.)
pub fn within_budget(
    loads: &[f64],
    bounds: Bounds,
    objective: Objective,
    budget: Option<ReplicaBudget<'_>>,
) -> Result<Vec<usize>, InputError> {
    bounds.check(loads.len())?;
    let mut replicas = vec![bounds.min; loads.len()];
    if bounds.max == bounds.min {
        return Ok(replicas);
    }
    let rate = Rate::new(loads, bounds.total, objective);
    let mut heap: BinaryHeap<ReplicaCandidate> = (0..loads.len())
        .map(|partition| rate.candidate(partition, bounds.min))
        .collect();
    let size = |partition: usize| budget.map_or(0, |budget| u128::from(budget.sizes[partition]));
    let mut given = bounds.min * loads.len();
    let least: u128 = (0..loads.len())
        .map(|id| size(id) * bounds.min as u128)
        .sum();
    let mut bytes = budget.map_or(0, |budget| budget.bytes.saturating_sub(least));
    while given < bounds.total {
        let Some(best) = heap.pop() else { break };
        let partition = best.partition;
        if size(partition) > bytes {
            continue;
        }
        bytes -= size(partition);
        given += 1;
        replicas[partition] += 1;
        if replicas[partition] < bounds.max {
            heap.push(rate.candidate(partition, replicas[partition]));
        }
    }
    Ok(replicas)
}

/// Returns the value of `objective` at `replicas`. For `minmax` it is the hottest load per replica
/// in the unit of `loads`; for `l1` it is the sum of differences of shares.
pub fn objective_value(loads: &[f64], replicas: &[usize], objective: Objective) -> f64 {
    match objective {
        Objective::MinMax => loads
            .iter()
            .zip(replicas)
            .map(|(&load, &count)| per_replica(load, count))
            .fold(0.0, f64::max),
        Objective::L1 => {
            let total: f64 = loads.iter().sum();
            let slots: f64 = replicas.iter().map(|&count| count as f64).sum();
            let share = |load: f64| if total > 0.0 { load / total } else { 0.0 };
            loads
                .iter()
                .zip(replicas)
                .map(|(&load, &count)| (count as f64 / slots - share(load)).abs())
                .sum()
        }
    }
}

/// Returns the load of one replica. A partition without any carries all its load, unserved.
pub fn per_replica(load: f64, count: usize) -> f64 {
    match count {
        0 if load > 0.0 => f64::INFINITY,
        0 => 0.0,
        _ => load / count as f64,
    }
}

/// The worth of the next replica of each partition.
struct Rate<'a> {
    loads: &'a [f64],
    /// The replicas that a unit of load would get if replicas could be divided; unused by `minmax`.
    replicas_per_load: f64,
    objective: Objective,
}

impl<'a> Rate<'a> {
    fn new(loads: &'a [f64], total: usize, objective: Objective) -> Self {
        let sum: f64 = loads.iter().sum();
        let replicas_per_load = if sum > 0.0 { total as f64 / sum } else { 0.0 };
        Self {
            loads,
            replicas_per_load,
            objective,
        }
    }

    fn candidate(&self, partition: usize, count: usize) -> ReplicaCandidate {
        let load = self.loads[partition];
        let gain = match self.objective {
            Objective::MinMax => 0.0,
            Objective::L1 => {
                let share = load * self.replicas_per_load;
                let count = count as f64;
                (2.0 * (share - count) - 1.0).clamp(-1.0, 1.0)
            }
        };
        ReplicaCandidate {
            gain,
            heat: per_replica(load, count),
            count,
            partition,
        }
    }
}

/// A partition that may take one more replica; the greatest is the next to get it.
struct ReplicaCandidate {
    gain: f64,
    heat: f64,
    count: usize,
    partition: usize,
}

impl Ord for ReplicaCandidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.gain
            .total_cmp(&other.gain)
            .then(self.heat.total_cmp(&other.heat))
            .then(other.count.cmp(&self.count))
            .then(other.partition.cmp(&self.partition))
    }
}

impl PartialOrd for ReplicaCandidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ReplicaCandidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ReplicaCandidate {}
