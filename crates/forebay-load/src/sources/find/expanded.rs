//! What a source was found to stand for.

use object_store::ObjectMeta;
use object_store::path::Path;

/// The files that a source stands for.
#[derive(Debug)]
pub struct ExpandedSource {
    pub files: Vec<ObjectMeta>,
    /// The part of the source that has no wildcard: directories below it may give columns.
    pub root: Path,
}
