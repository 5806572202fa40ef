//! A document of the catalog, with its name once it is written.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name of a written document. It is unique, and no hash of the content: the name of a removed
/// document is never used again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct DocRef(Arc<str>);

/// Content that is stored as one document. It has a name once it is written. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Doc<T> {
    reference: Option<DocRef>,
    content: Arc<T>,
}

impl DocRef {
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for DocRef {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<DocRef> for String {
    fn from(name: DocRef) -> Self {
        name.as_str().to_owned()
    }
}

impl fmt::Display for DocRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T: Clone> Doc<T> {
    /// Returns the content for a change. The document must then be written again.
    pub fn edit(&mut self) -> &mut T {
        self.reference = None;
        Arc::make_mut(&mut self.content)
    }
}

impl<T> Doc<T> {
    /// Creates a document that is not written yet.
    pub fn new(content: T) -> Self {
        Self {
            reference: None,
            content: Arc::new(content),
        }
    }

    /// Creates a document from content that was read.
    pub fn read(reference: DocRef, content: T) -> Self {
        Self {
            reference: Some(reference),
            content: Arc::new(content),
        }
    }

    pub fn reference(&self) -> Option<&DocRef> {
        self.reference.as_ref()
    }

    /// Sets the name under which the document is written.
    pub fn written(&mut self, reference: DocRef) {
        self.reference = Some(reference);
    }
}

impl<T> Deref for Doc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.content
    }
}

/// Compares documents by content, whatever their names.
impl<T: PartialEq> PartialEq for Doc<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.content, &other.content) || self.content == other.content
    }
}

impl<T: Eq> Eq for Doc<T> {}
