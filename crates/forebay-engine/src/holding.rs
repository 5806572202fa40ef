//! Which partitions a store has files of, where that is not all of them.

use std::fmt;

use crate::manifest::Manifest;
use crate::partition::OpenPartitions;

/// Says which partitions of a version a store holds. A store has the manifests of all versions, so
/// that bounds and order are known of each; files it needs of the partitions held only.
///
/// The answer may change at any time: what is open stays open, and
/// [`Serving::rehold`](crate::Serving::rehold) opens what serves anew.
pub trait Holding: fmt::Debug + Send + Sync {
    fn held(&self, manifest: &Manifest) -> OpenPartitions;
}
