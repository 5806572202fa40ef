//! Chooses which client takes which piece of the rows next.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use forebay_cluster::HostPort;
use forebay_load::load::RowPieces;

use super::routes::RowRoutes;

/// Pieces by the node that leads them. A client stays with one node while that node has pieces
/// left, so that all nodes work. Then it helps the node with the most pieces left. The pieces of a
/// node are taken in key order.
#[derive(Debug)]
pub struct PieceQueue(Mutex<Vec<VecDeque<usize>>>);

impl PieceQueue {
    /// Creates the queue with all pieces. `routes` is for rows in the table's order.
    pub fn new(pieces: &RowPieces, routes: Option<&RowRoutes>) -> Self {
        let mut by_node: BTreeMap<Option<&HostPort>, VecDeque<usize>> = BTreeMap::new();
        for (piece, begin) in pieces.begins().iter().enumerate() {
            let leader = routes.and_then(|routes| routes.nodes_at(begin).first());
            by_node.entry(leader).or_default().push_back(piece);
        }
        Self::of(by_node.into_values().collect())
    }

    fn of(queues: Vec<VecDeque<usize>>) -> Self {
        Self(Mutex::new(queues))
    }

    /// Returns the next piece for this client. `None`: all are taken.
    pub fn next(&self, client: usize) -> Option<usize> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = client % queues.len().max(1);
        let own = queues.get_mut(own).and_then(VecDeque::pop_front);
        own.or_else(|| {
            let longest = queues.iter_mut().max_by_key(|queue| queue.len())?;
            longest.pop_front()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_finish_a_node_then_help_the_one_with_most_work_left() {
        let queue = PieceQueue::of(vec![[0, 1].into(), [2, 3, 4, 5, 6].into(), [7].into()]);
        let taken: Vec<_> = [0, 1, 2, 3, 2, 0, 1]
            .map(|client| queue.next(client))
            .into();
        let all: Vec<_> = [0, 2, 7, 1, 3, 4, 5].map(Some).into();
        assert_eq!(taken, all);
        assert_eq!(queue.next(2), Some(6));
        assert_eq!(queue.next(0), None);
        assert_eq!(PieceQueue::of(Vec::new()).next(5), None);
    }
}
