//! Small objects that are replaced: each only if it is still as this process last saw it.
//!
//! The engine reads a pointer, thinks, and writes the next one, under a lock. Here the lock is a
//! lease, which a process that was held up may have lost without knowing; so in addition each
//! replacement says what it replaces, and the store refuses it when something else is there. What
//! was not looked at before is taken for absent: then it is made, never replaced.
//!
//! Each request costs time and money, so what was read is kept, and given again to who may have it
//! ([`Trust`]).

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::objects::{ContentTag, News, Objects, PutOutcome};

/// How long something may be read from memory that nobody is kept from changing. Who reads has to
/// bear that it changes just after the answer anyway.
pub const FRESH: Duration = Duration::from_secs(1);

/// Which earlier answer will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    None,
    /// A second old at most.
    Fresh,
    /// Any: the locks that are held keep it as it is.
    Locked,
}

/// What one who opens the same store several times keeps of it meanwhile.
#[derive(Debug, Default, Clone)]
pub struct StoreMemory {
    pub(crate) documents: Arc<Documents>,
    pub(crate) notices: Arc<Mutex<Vec<String>>>,
}

impl StoreMemory {
    /// What users have to be told of what was done, since this was asked last.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock())
    }
}

/// What was seen of each object, by its name.
#[derive(Debug, Default)]
pub struct Documents {
    known: Mutex<HashMap<String, KnownDocument>>,
}

#[derive(Debug, Default, Clone)]
struct KnownDocument {
    seen: ContentTag,
    /// The content as it was at that time; `None` in it: there was none.
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
        // That something is absent may be over by the time when its place is wanted.
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
                    "somebody else changed it meanwhile, and that stands: look at it (forebay versions), \
                     then run this command again if it is still wanted",
                ))
            }
        }
    }

    pub fn forget(&self, name: &str) {
        self.known.lock().remove(name);
    }

    /// What objects with such names hold is read anew. How they were seen stays, for who replaces
    /// them.
    pub fn forget_content(&self, prefix: &str) {
        for (name, known) in &mut *self.known.lock() {
            if name.starts_with(prefix) {
                known.content = None;
            }
        }
    }

    /// An object as a look found it: content that was read before is kept where it is of that.
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

    /// What an object holds.
    pub fn note(&self, name: &str, seen: ContentTag, content: Option<Bytes>, now: Duration) {
        let known = KnownDocument {
            seen,
            content: Some((content, now)),
        };
        self.known.lock().insert(name.to_owned(), known);
    }
}
