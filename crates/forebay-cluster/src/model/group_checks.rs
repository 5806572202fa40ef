//! Checks of a live table's groups, alone and against the model before, for
//! [`Model::check_next`](super::Model::check_next).

use std::collections::BTreeSet;

use forebay_engine::TableName;

use super::next_checks::is_first;
use super::{GroupEntry, PeerState, TableGroups};
use crate::bugs::{Bug, is_planted};

impl TableGroups {
    /// Checks that the partitions are adjacent and cover the whole order.
    pub(super) fn check(&self, name: &TableName) {
        debug_assert!(
            self.all()
                .next()
                .is_some_and(|first| is_first(&first.bounds.lower)),
            "the partitions of table {name} do not begin where its order does"
        );
        debug_assert!(
            (self.all()).is_sorted_by(|one, next| {
                one.bounds.upper.as_ref() == Some(&next.bounds.lower)
                    && one.bounds.lower < next.bounds.lower
            }),
            "the partitions of table {name} do not lie side by side"
        );
        debug_assert!(
            self.all()
                .last()
                .is_some_and(|last| last.bounds.upper.is_none()),
            "the partitions of table {name} do not reach the end"
        );
        let splits = self.all().filter_map(|group| group.split.as_ref());
        let children = splits.flat_map(|split| &split.children);
        let ids = || self.all().map(|group| group.partition);
        let ids: Vec<_> = ids().chain(children.map(|child| child.partition)).collect();
        debug_assert!(
            ids.iter().collect::<BTreeSet<_>>().len() == ids.len(),
            "two partitions of table {name} have one number: {ids:?}"
        );
    }
}

impl GroupEntry {
    /// Checks that the peers are distinct, and that the children of a split are adjacent and within
    /// the partition.
    pub(super) fn check(&self) {
        let peers: BTreeSet<_> = self.peers.iter().map(|entry| entry.peer).collect();
        debug_assert!(
            peers.len() == self.peers.len()
                && peers.last().is_none_or(|last| *last < self.next_peer),
            "peers of group {} have one number, or one that is still to be given: {:?}",
            self.group,
            self.peers
        );
        let nodes: BTreeSet<_> = self.staying().map(|entry| entry.node).collect();
        debug_assert_eq!(
            nodes.len(),
            self.staying().count(),
            "a node is to have two replicas of group {}: {:?}",
            self.group,
            self.peers
        );
        let children = self.split.as_ref().map(|split| &split.children[..]);
        let lie_within = |children: &[GroupEntry]| {
            let ends = children.first().zip(children.last());
            ends.is_some_and(|(first, last)| {
                self.bounds.lower < first.bounds.lower && last.bounds.upper == self.bounds.upper
            }) && children
                .iter()
                .all(|child| self.bounds.covers(&child.bounds) && child.epoch == self.epoch + 1)
                && children.is_sorted_by(|one, next| {
                    one.bounds.upper.as_ref() == Some(&next.bounds.lower)
                        && one.bounds.lower < next.bounds.lower
                })
        };
        debug_assert!(
            children.is_none_or(lie_within),
            "group {} goes {}, and is to be split: {children:?}",
            self.group,
            self.bounds
        );
    }

    /// Checks the group against its previous entry, `before`.
    pub(super) fn check_next(&self, before: &Self) {
        let place = |group: &Self| (group.epoch, group.term, group.next_peer);
        let (was, is) = (place(before), place(self));
        debug_assert!(
            was.0 <= is.0 && was.1 <= is.1 && was.2 <= is.2,
            "epoch, term and next peer of group {} were {was:?}, and are {is:?}",
            self.group
        );
        debug_assert!(
            before.founders == self.founders && before.partition == self.partition,
            "group {} was founded by {:?}, and now by {:?}",
            self.group,
            before.founders,
            self.founders
        );
        debug_assert_eq!(
            before.bounds == self.bounds,
            before.epoch == self.epoch,
            "group {} went {}, and goes {}, in epoch {}",
            self.group,
            before.bounds,
            self.bounds,
            self.epoch
        );
        for entry in &self.peers {
            let was = before.peer(entry.peer);
            debug_assert!(
                was.is_some() || entry.peer >= before.next_peer,
                "peer {:?} of group {} had left, and is back",
                entry.peer,
                self.group
            );
            debug_assert!(
                was.is_none_or(|was| was.node == entry.node
                    && (was.state == entry.state
                        || was.state != PeerState::Lost && entry.state != PeerState::New)
                    || is_planted(Bug::ReusesAPeer)),
                "a peer of group {} was {was:?}, and is {entry:?}",
                self.group
            );
        }
    }
}
