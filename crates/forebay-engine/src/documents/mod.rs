//! The documents of a store: manifests, pointers, layouts, seals.

pub(crate) mod column_profile;
pub(crate) mod holder;
pub(crate) mod layout;
pub(crate) mod manifest;
pub(crate) mod pins;
pub(crate) mod pointer;
pub(crate) mod pointers;
pub(crate) mod reserve;
pub(crate) mod run_description;
pub(crate) mod seal;
pub(crate) mod upgrade;
