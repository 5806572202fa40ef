//! The partitions whose files a store has, if these are not all partitions.

use std::fmt;

use crate::documents::manifest::Manifest;
use crate::keys::partition::OpenPartitions;

/// A source of the partitions that a store holds of a version. A store has the manifests of all
/// versions, so it knows bounds and order of each. It needs files of the held partitions only.
///
/// The answer may change at any time. Open versions stay open, and
/// [`Serving::rehold`](crate::Serving::rehold) reopens the serving versions.
pub trait Holding: fmt::Debug + Send + Sync {
    fn held(&self, manifest: &Manifest) -> OpenPartitions;
}
