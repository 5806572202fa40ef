//! Periodic work of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Shell;
use crate::message::NodeRoom;
use crate::node::{FollowerEvent, NodeEvent};

/// The time between two checks of the free disk space and of the reads.
const FREE: Duration = Duration::from_secs(5);
/// The time between two checks for requests, if they cost nothing.
const REQUESTS: Duration = Duration::from_millis(200);
/// The time between two checks of the lengths of serving files.
const CARE: Duration = Duration::from_secs(5);
/// The time between two checks whether ordered replicas may be created.
const ORDERS: Duration = Duration::from_secs(1);
/// The time between two log lines about a table whose partitions changed leaders.
const LEADERS: Duration = Duration::from_secs(1);
/// The time between two reads of all serving files.
const READING: Duration = Duration::from_secs(24 * 3600);

/// The next due time of each task.
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
    /// Set while serving versions are being checked.
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
    /// Runs the tasks that are due.
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
