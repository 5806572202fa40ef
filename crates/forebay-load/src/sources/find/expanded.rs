//! Defines the result of expanding a source.

use object_store::ObjectMeta;
use object_store::path::Path;

/// The files that a source names.
#[derive(Debug)]
pub struct ExpandedSource {
    pub files: Vec<ObjectMeta>,
    /// The part of the source that has no wildcard. Directories below it may give columns.
    pub root: Path,
}
