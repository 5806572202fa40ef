//! Starts the host that runs a node's replicas.

use std::fmt;
use std::io;
use std::sync::Arc;

use forebay_host::{HostParts, ReadPace, ReplicaHost, StandingWatch};
use forebay_io::Clock;
use forebay_objects::PullThrottle;
use parking_lot::Mutex;

use super::ReplicaParts;
use super::roster::{RosterSender, SharedRoster};

pub fn start_host(
    parts: &ReplicaParts,
    clock: &Arc<dyn Clock>,
    roster: &Arc<SharedRoster>,
    watch: &Arc<Waker>,
) -> io::Result<ReplicaHost> {
    ReplicaHost::start(HostParts {
        clock: Arc::clone(clock),
        post: Arc::new(RosterSender {
            roster: Arc::clone(roster),
            peers: Arc::clone(&parts.peers),
        }),
        pace: Arc::new(TailPace(Arc::clone(&parts.throttle))),
        watch: Arc::clone(watch) as _,
        appliers: parts.appliers,
        // The range is so large that no process reaches the numbers of the next one.
        first_request: parts.cache.random().next_u64() >> 1,
    })
}

/// The rate at which the log is sent to lagging replicas. All fetches of the node share this rate,
/// and it decreases if serving suffers.
#[derive(Debug)]
struct TailPace(Arc<PullThrottle>);

impl ReadPace for TailPace {
    fn begin(&self) {
        self.0.enter();
    }

    fn end(&self) {
        self.0.leave();
    }

    fn wait(&self, bytes: u64) {
        self.0.take_here(bytes);
    }
}

/// Wakes a thread that may start later than the threads that wake it: calls the function set last,
/// or nothing if none was set.
#[derive(Default)]
pub struct Waker(Mutex<Option<Box<dyn Fn() + Send>>>);

impl Waker {
    pub fn set(&self, wake: impl Fn() + Send + 'static) {
        *self.0.lock() = Some(Box::new(wake));
    }

    pub fn wake(&self) {
        if let Some(wake) = &*self.0.lock() {
            wake();
        }
    }
}

impl StandingWatch for Waker {
    fn changed(&self) {
        self.wake();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
