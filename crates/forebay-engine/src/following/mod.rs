//! Which versions serve, and following the pointers that say so.

pub(crate) mod activate;
pub(crate) mod follow;
pub(crate) mod followed_table;
pub(crate) mod serving;
pub(crate) mod serving_set;
