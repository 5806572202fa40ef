//! The nodes of a cluster, as commands ask them.

pub(crate) mod login;
pub(crate) mod node_http;
pub(crate) mod node_key;
pub(crate) mod node_pages;
