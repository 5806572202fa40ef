//! Small objects that are replaced, each only if it is as this process last saw it.
//!
//! The engine reads a pointer and later writes the next one, under a lock. In object storage the
//! lock is a lease, which a process that was delayed may have lost without knowing. So each
//! replacement also states what it replaces, and the store refuses it if the object has changed. An
//! object that was not read before is assumed to be absent: it is then created, never replaced.
//!
//! Each request costs time and money, so content is cached, and returned to callers that may use it
//! ([`Trust`]).

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::objects::{ContentTag, News, Objects, PutOutcome};

/// How long content may be read from memory if no lock protects it. The reader must accept that it
/// may change right after the answer anyway.
pub const FRESH: Duration = Duration::from_secs(1);

/// The cached content that a caller accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    None,
    /// At most a second old.
    Fresh,
    /// Any: the locks that are held protect it from changes.
    Locked,
}

/// The cache of a process that opens the same store several times.
#[derive(Debug, Default, Clone)]
pub struct StoreMemory {
    pub(crate) documents: Arc<Documents>,
    pub(crate) notices: Arc<Mutex<Vec<String>>>,
}

impl StoreMemory {
    /// Returns the new messages for users since the last call.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock())
    }
}

/// The last seen state of each object, by its name.
#[derive(Debug, Default)]
pub struct Documents {
    known: Mutex<HashMap<String, KnownDocument>>,
}

#[derive(Debug, Default, Clone)]
struct KnownDocument {
    seen: ContentTag,
    /// The content as of that time; `None` in it: the object did not exist.
    content: Option<(Option<Bytes>, Duration)>,
}

impl Documents {
    pub fn read(
        &self,
        objects: &Objects,
        name: &str,
        trust: Trust,
        now: Duration,
    ) -> io::Result<Bytes> {
        let known = self.trusted(name, trust, now);
        let content = match known {
            Some(content) => content,
            None => match objects.news(name, None)? {
                News::Content(bytes, seen) => {
                    self.note(name, Some(seen), Some(bytes.clone()), now);
                    Some(bytes)
                }
                News::Absent | News::Same => {
                    self.note(name, None, None, now);
                    None
                }
            },
        };
        content.ok_or(io::ErrorKind::NotFound.into())
    }

    fn trusted(&self, name: &str, trust: Trust, now: Duration) -> Option<Option<Bytes>> {
        let known = self.known.lock();
        let (content, at) = known.get(name)?.content.as_ref()?;
        let is_trusted = match trust {
            Trust::None => false,
            Trust::Fresh => now.saturating_sub(*at) <= FRESH,
            Trust::Locked => true,
        };
        is_trusted.then(|| content.clone())
    }

    pub fn exists(
        &self,
        objects: &Objects,
        name: &str,
        trust: Trust,
        now: Duration,
    ) -> io::Result<bool> {
        // An absent object may exist by the time it is created.
        if let Some(Some(_)) = self.trusted(name, trust, now) {
            return Ok(true);
        }
        let found = objects.head(name)?;
        let exists = found.is_some();
        self.saw(name, found.map(|(_, seen)| seen));
        Ok(exists)
    }

    pub fn replace(
        &self,
        objects: &Objects,
        name: &str,
        content: Bytes,
        now: Duration,
    ) -> io::Result<()> {
        let seen = self.known.lock().get(name).cloned().unwrap_or_default();
        match objects.put_if(name, content.clone(), &seen.seen)? {
            PutOutcome::Done(seen) => {
                self.note(name, seen, Some(content), now);
                Ok(())
            }
            PutOutcome::Changed => {
                self.forget(name);
                Err(io::Error::other(
                    "somebody else changed it meanwhile, and that change stays: check it (forebay \
                     versions), then run this command again if you still want it",
                ))
            }
        }
    }

    pub fn forget(&self, name: &str) {
        self.known.lock().remove(name);
    }

    /// Discards the content of objects with such names. Their tags stay, for replacing them.
    pub fn forget_content(&self, prefix: &str) {
        for (name, known) in &mut *self.known.lock() {
            if name.starts_with(prefix) {
                known.content = None;
            }
        }
    }

    /// Records an object's tag. Cached content is kept if it has that tag.
    pub fn saw(&self, name: &str, seen: ContentTag) {
        let mut known = self.known.lock();
        let known = known.entry(name.to_owned()).or_default();
        if known.seen != seen {
            *known = KnownDocument {
                seen,
                content: None,
            };
        }
    }

    /// Records an object's content.
    pub fn note(&self, name: &str, seen: ContentTag, content: Option<Bytes>, now: Duration) {
        let known = KnownDocument {
            seen,
            content: Some((content, now)),
        };
        self.known.lock().insert(name.to_owned(), known);
    }
}
