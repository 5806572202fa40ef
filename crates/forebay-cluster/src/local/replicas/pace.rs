//! The rate at which the log is sent to lagging replicas.
//!
//! All fetches of the node share this rate, and it decreases if serving suffers.

use std::sync::Arc;

use forebay_host::ReadPace;
use forebay_objects::PullThrottle;

#[derive(Debug)]
pub struct TailPace(pub Arc<PullThrottle>);

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
