//! Having the groups that are led here become what the catalog wants.

use forebay_replica::{next_change, next_leader};

use super::commons::ReplicaCommons;
use crate::live::ReplicaOrder;

impl ReplicaCommons {
    /// One step of each group. REQUIRES: the catalog is certain to want this.
    pub fn steer(&self, orders: &[ReplicaOrder]) {
        for order in orders.iter().filter(|order| !order.is_new) {
            let group = self.host.standing(order.group);
            let Some(group) = group.filter(|group| group.me == order.peer) else {
                continue;
            };
            let (members, standing) = (&group.members, &group.standing);
            if let Some(changes) = next_change(&order.wanted, members, standing) {
                self.host.wish(order.group, changes);
            } else if let Some(to) = next_leader(order.peer, &order.wanted, members, standing) {
                self.host.transfer(order.group, to);
            }
        }
    }
}
