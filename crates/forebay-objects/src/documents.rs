//! Small objects that are replaced: each only if it is still as this process last saw it.
//!
//! The engine reads a pointer, thinks, and writes the next one, under a lock. Here the lock is a
//! lease, which a process that was held up may have lost without knowing; so in addition each
//! replacement says what it replaces, and the store refuses it when something else is there. What
//! was not looked at before is taken for absent: then it is made, never replaced.

use std::collections::HashMap;
use std::io;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::objects::{News, Objects, Put, Seen};

/// What was seen of each object, by its name.
#[derive(Debug, Default)]
pub struct Documents {
    seen: Mutex<HashMap<String, Seen>>,
}

impl Documents {
    pub fn read(&self, objects: &Objects, name: &str) -> io::Result<Bytes> {
        match objects.news(name, None)? {
            News::Content(bytes, seen) => {
                self.note(name, Some(seen));
                Ok(bytes)
            }
            News::Absent | News::Same => {
                self.note(name, None);
                Err(io::ErrorKind::NotFound.into())
            }
        }
    }

    pub fn exists(&self, objects: &Objects, name: &str) -> io::Result<bool> {
        let found = objects.head(name)?;
        let exists = found.is_some();
        self.note(name, found.map(|(_, seen)| seen));
        Ok(exists)
    }

    pub fn replace(&self, objects: &Objects, name: &str, content: Bytes) -> io::Result<()> {
        let seen = self.seen.lock().get(name).cloned().flatten();
        match objects.put_if(name, content, &seen)? {
            Put::Done(now) => {
                self.note(name, now);
                Ok(())
            }
            Put::Changed => Err(io::Error::other(
                "somebody else changed it meanwhile, and that stands: look at it (forebay versions), \
                 then run this command again if it is still wanted",
            )),
        }
    }

    pub fn forget(&self, name: &str) {
        self.seen.lock().remove(name);
    }

    fn note(&self, name: &str, seen: Seen) {
        self.seen.lock().insert(name.to_owned(), seen);
    }
}
