//! What a node does from time to time, whatever happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Shell;
use crate::message::NodeRoom;
use crate::node::{FollowerEvent, NodeEvent};

/// Between two looks at the free space of the disk, and at what is read.
const FREE: Duration = Duration::from_secs(5);
/// Between two looks for requests, where they cost nothing.
const REQUESTS: Duration = Duration::from_millis(200);
/// Between two looks at the lengths of the files that serve, and two readings of them.
const CARE: Duration = Duration::from_secs(5);
/// Between two looks whether replicas may be made that were ordered.
const ORDERS: Duration = Duration::from_secs(1);
/// Between two lines of a table whose partitions got other leaders.
const LEADERS: Duration = Duration::from_secs(1);
const READING: Duration = Duration::from_secs(24 * 3600);

/// When what is due next.
#[derive(Debug)]
pub struct Maintenance {
    free_at: Duration,
    requests_at: Duration,
    care_at: Duration,
    orders_at: Duration,
    leaders_at: Duration,
    reading_at: Duration,
    join_at: Duration,
    joins: u64,
    /// Set while what serves is looked after.
    caring: Arc<AtomicBool>,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self {
            free_at: Duration::ZERO,
            requests_at: Duration::ZERO,
            care_at: CARE,
            orders_at: Duration::ZERO,
            leaders_at: LEADERS,
            reading_at: READING,
            join_at: Duration::ZERO,
            joins: 0,
            caring: Arc::default(),
        }
    }
}

impl Shell {
    /// Does what is due.
    pub(super) fn do_maintenance(self: &Arc<Self>, maintenance: &mut Maintenance) {
        let now = self.now().monotonic;
        if now >= maintenance.leaders_at {
            maintenance.leaders_at = now + LEADERS;
            self.log_leaders();
        }
        if now >= maintenance.free_at {
            maintenance.free_at = now + FREE;
            let versions = &self.parts.versions;
            let room = NodeRoom {
                free_bytes: versions.free_bytes(),
                fetched_bytes_per_s: versions.fetched_bytes_per_s(),
            };
            let reads = versions.reads();
            self.handle(NodeEvent::Follower(FollowerEvent::Room(room)));
            self.handle(NodeEvent::Follower(FollowerEvent::Reads(reads)));
        }
        if now >= maintenance.orders_at {
            maintenance.orders_at = now + ORDERS;
            self.order_again();
        }
        if now >= maintenance.requests_at && self.parts.catalog.is_near() {
            maintenance.requests_at = now + REQUESTS;
            self.handle(NodeEvent::Notified);
        }
        if self.parts.who.key.is_some() && now >= maintenance.join_at && !self.is_let_in() {
            maintenance.join_at = now + self.timing().join_retry();
            maintenance.joins += 1;
            self.join(maintenance.joins);
        }
        if now >= maintenance.care_at && !maintenance.caring.swap(true, Ordering::Relaxed) {
            maintenance.care_at = now + CARE;
            self.remove_superseded();
            self.look_after(now, maintenance);
        }
    }

    fn look_after(self: &Arc<Self>, now: Duration, maintenance: &mut Maintenance) {
        let whole = now >= maintenance.reading_at;
        if whole {
            maintenance.reading_at = now + READING;
        }
        let caring = Arc::clone(&maintenance.caring);
        self.background("forebay-care", move |shell| {
            shell.parts.versions.look_after(whole);
            caring.store(false, Ordering::Relaxed);
        });
    }
}
