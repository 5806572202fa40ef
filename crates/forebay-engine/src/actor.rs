//! The person or program that acts on a store.

use std::sync::Arc;

use parking_lot::Mutex;

/// An actor, as the history records it.
#[derive(Debug, Clone, Default)]
pub struct Actor {
    pub user: String,
    /// The machine, or the address that a request came from.
    pub host: String,
    /// The reason that a history entry could not be written, for a caller that prints warnings.
    pub problem: Arc<Mutex<Option<String>>>,
}
