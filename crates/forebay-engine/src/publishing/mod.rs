//! Pushing, installing, verifying and removing versions.

pub(crate) mod cleanup;
pub(crate) mod committed;
pub(crate) mod compact;
pub(crate) mod dropped;
pub(crate) mod install;
pub(crate) mod proof;
pub(crate) mod push;
pub(crate) mod release;
pub(crate) mod verify;
