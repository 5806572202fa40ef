//! The order of keys: bounds, partitions, routes.

pub(crate) mod bound;
pub(crate) mod key_text;
pub(crate) mod partition;
pub(crate) mod reads;
pub(crate) mod route;
pub(crate) mod walk;
