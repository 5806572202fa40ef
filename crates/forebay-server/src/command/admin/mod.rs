//! Commands on the server, the connection and the schema.

pub(in crate::command) mod acl;
pub(in crate::command) mod clients;
pub(in crate::command) mod cluster;
pub(in crate::command) mod connection;
pub(in crate::command) mod introspect;
pub(in crate::command) mod tune;
