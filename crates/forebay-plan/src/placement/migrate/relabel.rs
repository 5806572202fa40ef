//! Assigns nodes to the parts of a placement made from nothing: the matching that ships least.

use std::collections::BTreeMap;

use super::super::cluster::{Fate, PlacementProblem};
use super::super::layout::Placement;

/// The most nodes that are matched exactly, in time that grows with the third power of their
/// number.
const MOST_MATCHED: usize = 600;

/// Returns the placement with its nodes exchanged so that as many bytes as possible are where
/// `current` has them. Nodes are exchanged only with others of the same zone, slots and bytes.
pub fn relabel(cluster: &PlacementProblem, current: &Placement, placement: Placement) -> Placement {
    let mut nodes: Vec<Vec<u32>> = vec![Vec::new(); placement.nodes().len()];
    let holders = current.holders(cluster.partitions());
    for class in classes(cluster) {
        // What role `row` saves if node `column` has it.
        let mut saved: Vec<BTreeMap<usize, f64>> = vec![BTreeMap::new(); class.len()];
        for (row, &role) in class.iter().enumerate() {
            for partition in placement.distinct(role) {
                let size = cluster.size(partition) as f64;
                for &node in &holders[partition as usize] {
                    if let Ok(column) = class.binary_search(&(node as usize)) {
                        *saved[row].entry(column).or_default() += size;
                    }
                }
            }
        }
        let matching = if class.len() <= MOST_MATCHED {
            let gain = |row: &BTreeMap<usize, f64>| {
                let columns = 0..class.len();
                columns
                    .map(|column| row.get(&column).copied().unwrap_or(0.0))
                    .collect()
            };
            best_matching(&saved.iter().map(gain).collect::<Vec<_>>())
        } else {
            greedy_matching(&saved)
        };
        for (row, column) in matching.into_iter().enumerate() {
            nodes[class[column]] = placement.on(class[row]).to_vec();
        }
    }
    Placement::new(nodes)
}

/// Returns for each row the remaining column that gains most, the greatest gains first.
fn greedy_matching(gain: &[BTreeMap<usize, f64>]) -> Vec<usize> {
    let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
    for (row, gains) in gain.iter().enumerate() {
        pairs.extend(gains.iter().map(|(&column, &gain)| (gain, row, column)));
    }
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut column_of = vec![None; gain.len()];
    let mut taken = vec![false; gain.len()];
    for (_, row, column) in pairs {
        if column_of[row].is_none() && !taken[column] {
            column_of[row] = Some(column);
            taken[column] = true;
        }
    }
    let mut free = (0..gain.len()).filter(|&column| !taken[column]);
    let columns = column_of.into_iter();
    columns
        .map(|column| column.or_else(|| free.next()).unwrap_or(0))
        .collect()
}

/// Returns the classes of nodes that can be exchanged, each in ascending order.
fn classes(cluster: &PlacementProblem) -> Vec<Vec<usize>> {
    let mut classes = std::collections::BTreeMap::<_, Vec<usize>>::new();
    for (number, node) in cluster.nodes.iter().enumerate() {
        if node.fate == Fate::Stays {
            let zone = cluster.zoned().then_some(node.zone);
            classes
                .entry((zone, node.max_partitions, node.bytes))
                .or_default()
                .push(number);
        }
    }
    classes.into_values().collect()
}

/// Returns for each row the column such that the sum is greatest (the Hungarian method: shortest
/// augmenting paths over reduced costs, one row at a time).
fn best_matching(gain: &[Vec<f64>]) -> Vec<usize> {
    let size = gain.len();
    let most = gain.iter().flatten().copied().fold(0.0, f64::max);
    // Row and column 0 are the unmatched.
    let mut row_price = vec![0.0; size + 1];
    let mut column_price = vec![0.0; size + 1];
    let mut row_of = vec![0; size + 1];
    for row in 1..=size {
        row_of[0] = row;
        let mut column = 0;
        let mut least = vec![f64::INFINITY; size + 1];
        let mut before = vec![0; size + 1];
        let mut done = vec![false; size + 1];
        while row_of[column] != 0 {
            done[column] = true;
            let at = row_of[column];
            let (mut step, mut next) = (f64::INFINITY, 0);
            for other in 1..=size {
                if done[other] {
                    continue;
                }
                let cost = most - gain[at - 1][other - 1];
                let reduced = cost - row_price[at] - column_price[other];
                if reduced < least[other] {
                    (least[other], before[other]) = (reduced, column);
                }
                if least[other] < step {
                    (step, next) = (least[other], other);
                }
            }
            for other in 0..=size {
                if done[other] {
                    row_price[row_of[other]] += step;
                    column_price[other] -= step;
                } else {
                    least[other] -= step;
                }
            }
            column = next;
        }
        while column != 0 {
            row_of[column] = row_of[before[column]];
            column = before[column];
        }
    }
    let mut column_of = vec![0; size];
    for column in 1..=size {
        column_of[row_of[column] - 1] = column - 1;
    }
    column_of
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{best_matching, greedy_matching};
    use crate::Random;

    fn best_by_trying(gain: &[Vec<f64>], row: usize, used: &mut Vec<bool>) -> f64 {
        if row == gain.len() {
            return 0.0;
        }
        let mut best = f64::NEG_INFINITY;
        for column in 0..gain.len() {
            if !used[column] {
                used[column] = true;
                best = best.max(gain[row][column] + best_by_trying(gain, row + 1, used));
                used[column] = false;
            }
        }
        best
    }

    #[test]
    fn the_matching_is_the_best_of_all() {
        let mut random = Random::new(11);
        for case in 0..200 {
            let size = 1 + case % 6;
            let gain: Vec<Vec<f64>> = (0..size)
                .map(|_| (0..size).map(|_| random.below(8) as f64).collect())
                .collect();
            let matching = best_matching(&gain);
            let sum: f64 = matching
                .iter()
                .enumerate()
                .map(|(row, &column)| gain[row][column])
                .sum();
            assert_eq!(
                sum,
                best_by_trying(&gain, 0, &mut vec![false; size]),
                "{gain:?}"
            );
            let mut columns = matching;
            columns.sort_unstable();
            assert_eq!(columns, (0..size).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_greedy_matching_takes_the_greatest_gains_and_every_column_once() {
        let gain = [
            BTreeMap::from([(0, 5.0), (1, 4.0)]),
            BTreeMap::from([(0, 6.0)]),
            BTreeMap::new(),
        ];
        assert_eq!(greedy_matching(&gain), [1, 0, 2]);
    }
}
