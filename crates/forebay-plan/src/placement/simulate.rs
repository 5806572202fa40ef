//! Routes requests to the nodes of a placement one by one, as a router without knowledge of the
//! future.

use super::layout::Placement;
use super::measure::split_loads;
use super::workload::Stream;
use crate::Random;

/// The rule that chooses a partition's node for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Any, at random.
    Random,
    /// The one with the fewest requests so far; the lowest of these.
    LeastLoaded,
    /// Each slot gets the same part of its partition's requests.
    EvenSplit,
}

/// Returns the requests on each node after `requests` from `stream`. Does not count requests for
/// partitions that no node has.
pub fn route(
    placement: &Placement,
    stream: &mut Stream,
    requests: u64,
    policy: Policy,
    seed: u64,
) -> Vec<f64> {
    let partitions = stream.partitions();
    if policy == Policy::EvenSplit {
        let counts = stream.counts(requests);
        let loads: Vec<f64> = counts.iter().map(|&count| count as f64).collect();
        return split_loads(placement, &loads);
    }
    let holders = placement.holders(partitions);
    // Another seed than that of the stream, so that the numbers differ.
    let mut random = Random::new(!seed);
    let mut served = vec![0u64; placement.nodes().len()];
    for _ in 0..requests {
        let holders = &holders[stream.draw() as usize];
        let node = match policy {
            Policy::Random if !holders.is_empty() => Some(holders[random.below(holders.len())]),
            _ => holders
                .iter()
                .copied()
                .min_by_key(|&node| served[node as usize]),
        };
        if let Some(node) = node {
            served[node as usize] += 1;
        }
    }
    served.into_iter().map(|count| count as f64).collect()
}

/// Returns what the nodes carry together when the hottest is at its limit, over what they could:
/// the mean over the most. It is the throughput of a placement against that of a perfect one.
pub fn throughput(served: &[f64]) -> f64 {
    let most = served.iter().copied().fold(0.0, f64::max);
    let mean = served.iter().sum::<f64>() / served.len().max(1) as f64;
    if most > 0.0 { mean / most } else { 1.0 }
}
