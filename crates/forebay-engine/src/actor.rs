//! Who acts on a store.

use std::sync::Arc;

use parking_lot::Mutex;

/// Who acts on a store: it goes into the history.
#[derive(Debug, Clone, Default)]
pub struct Actor {
    pub user: String,
    /// The machine, or the address that a request came from.
    pub host: String,
    /// Why an entry could not be written, for who prints warnings.
    pub problem: Arc<Mutex<Option<String>>>,
}
