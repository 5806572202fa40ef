//! What all parts of live tables share: options, errors, shapes, manifests, ranges that were
//! removed.

pub(in crate::live) mod applied;
pub(in crate::live) mod batch;
pub(in crate::live) mod content;
pub(in crate::live) mod error;
pub(in crate::live) mod expiry;
pub(in crate::live) mod levels;
pub(in crate::live) mod manifest;
pub(in crate::live) mod options;
pub(in crate::live) mod promised_files;
pub(in crate::live) mod record;
pub(in crate::live) mod removed;
pub(in crate::live) mod shape;
pub(in crate::live) mod stored;
pub(in crate::live) mod traffic;
pub(in crate::live) mod turns;
pub(in crate::live) mod watch;
