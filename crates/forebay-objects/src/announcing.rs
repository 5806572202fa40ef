//! Keeps `tables.json` consistent with the pointers.
//!
//! A process that has changed a pointer updates the document: it reads it, changes it, and writes
//! it on the condition that it is unchanged. If the condition fails, it tries again. If there is no
//! document, or a damaged one, it is built from all pointers.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use forebay_engine::{DocumentError, Pointer, STORE_FILE, TableName};
use forebay_io::{Clock, Random};
use thiserror::Error;

use crate::objects::{News, Objects, PutOutcome};
use crate::tables_document::{NodeEntry, TABLES, TableEntry, TablesDocument};

/// How often a document that others write at the same time is tried.
const TRIES: u32 = 40;
const PAUSE_MS: u64 = 40;
const PAUSE_MOST_MS: u64 = 800;

/// Why the document could not be written.
#[derive(Debug, Error)]
pub enum AnnounceError {
    #[error("{name}: {source}")]
    Request { name: String, source: io::Error },
    #[error("{TABLES}: {0}")]
    Document(#[from] DocumentError),
    #[error("{TABLES} was changed by others each time")]
    Busy,
    /// The document would be the only object of the store.
    #[error("the store does not exist any more: {STORE_FILE} and all tables are missing")]
    NoStore,
}

impl AnnounceError {
    /// Returns whether it was refused for lack of permission.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Request { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// The location of the document.
#[derive(Debug, Clone, Copy)]
pub struct Announcing<'a> {
    pub objects: &'a Objects,
    pub clock: &'a dyn Clock,
    pub random: &'a dyn Random,
}

impl Announcing<'_> {
    /// Records a pointer that was just written, or read. Returns the document with it.
    pub fn pointer(
        &self,
        table: &TableName,
        pointer: &Pointer,
    ) -> Result<TablesDocument, AnnounceError> {
        self.update(|document| {
            let before = document.tables.get(table).copied();
            let mut entry = TableEntry::of(pointer);
            if before == entry {
                return Ok(false);
            }
            // Another process may have changed it since, or dropped the table and created it again.
            if before.is_some_and(|before| before.sequence >= pointer.sequence) {
                entry = self.entry(table)?;
            }
            match entry {
                Some(entry) => document.tables.insert(table.clone(), entry),
                None => document.tables.remove(table),
            };
            Ok(before != entry)
        })
    }

    /// Creates the document if it does not exist.
    pub fn made(&self) -> Result<TablesDocument, AnnounceError> {
        self.update(|_| Ok(false))
    }

    /// Adds a node, or removes it.
    pub fn node(
        &self,
        address: &str,
        entry: Option<NodeEntry>,
    ) -> Result<TablesDocument, AnnounceError> {
        self.update(|document| {
            Ok(match entry {
                Some(entry) => document.nodes.insert(address.to_owned(), entry) != Some(entry),
                None => document.nodes.remove(address).is_some(),
            })
        })
    }

    /// Changes the document with `change`, which returns whether it changed anything.
    fn update(
        &self,
        change: impl Fn(&mut TablesDocument) -> Result<bool, AnnounceError>,
    ) -> Result<TablesDocument, AnnounceError> {
        for tries in 0..TRIES {
            let (mut document, seen, is_whole) = match self.get(TABLES)? {
                News::Content(bytes, seen) => match TablesDocument::parse(&bytes) {
                    Ok(document) => (document, Some(seen), true),
                    Err(error @ DocumentError::Format { .. }) => return Err(error.into()),
                    Err(_) => (self.of_pointers()?, Some(seen), false),
                },
                News::Absent | News::Same => (self.of_all()?, None, false),
            };
            if !change(&mut document)? && is_whole {
                return Ok(document);
            }
            document.forget_nodes(self.clock.unix_ms());
            let bytes = document.stamped(self.random.next_u64())?;
            let put = self.objects.put_if(TABLES, bytes, &seen);
            match put.map_err(|source| failed(TABLES, source))? {
                PutOutcome::Done(_) => return Ok(document),
                PutOutcome::Changed => self.pause(tries),
            }
        }
        Err(AnnounceError::Busy)
    }

    fn pause(&self, tries: u32) {
        let most = (PAUSE_MS << tries.min(5)).min(PAUSE_MOST_MS);
        let drawn = self.random.next_u64() % most;
        self.clock.sleep(Duration::from_millis(drawn));
    }

    fn get(&self, name: &str) -> Result<News, AnnounceError> {
        let found = self.objects.news(name, None);
        found.map_err(|source| failed(name, source))
    }

    /// Returns the present pointer of the table. `None`: there is no table.
    fn entry(&self, table: &TableName) -> Result<Option<TableEntry>, AnnounceError> {
        match self.get(&pointer_name(table))? {
            News::Content(bytes, _) => Ok(TableEntry::of(&Pointer::parse(&bytes)?)),
            News::Absent | News::Same => Ok(None),
        }
    }

    /// Returns the document of all pointers if there is none. A store that is gone gets no
    /// document.
    fn of_all(&self) -> Result<TablesDocument, AnnounceError> {
        let document = self.of_pointers()?;
        if document.tables.is_empty() && matches!(self.get(STORE_FILE)?, News::Absent) {
            return Err(AnnounceError::NoStore);
        }
        Ok(document)
    }

    /// Returns the document of all present pointers. Damaged ones are left out.
    fn of_pointers(&self) -> Result<TablesDocument, AnnounceError> {
        let names = self.objects.list("tables");
        let names = names.map_err(|source| failed("tables", source))?;
        let names = names.iter().filter_map(|name| TableName::new(name).ok());
        let names: Vec<TableName> = names.collect();
        let wanted = names.iter().map(|table| (pointer_name(table), None));
        let mut tables = BTreeMap::new();
        for (table, found) in names.iter().zip(self.objects.news_of(wanted.collect())) {
            let found = found.map_err(|source| failed(&pointer_name(table), source))?;
            let News::Content(bytes, _) = found else {
                continue;
            };
            let pointer = Pointer::parse(&bytes).ok();
            if let Some(entry) = pointer.as_ref().and_then(TableEntry::of) {
                tables.insert(table.clone(), entry);
            }
        }
        Ok(TablesDocument::new(tables))
    }
}

/// Returns the name of a table's pointer in the store.
pub fn pointer_name(table: &TableName) -> String {
    format!("tables/{table}/current")
}

fn failed(name: &str, source: io::Error) -> AnnounceError {
    let name = name.to_owned();
    AnnounceError::Request { name, source }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use forebay_engine::seal;
    use forebay_io::{SystemClock, SystemRandom};
    use object_store::memory::InMemory;
    use object_store::path::Path as Key;

    use super::*;

    fn objects() -> Objects {
        Objects::over(Arc::new(InMemory::new()), Key::from("store")).unwrap()
    }

    fn name(text: &str) -> TableName {
        TableName::new(text).unwrap()
    }

    fn pointer(sequence: u64, serving: u64) -> Pointer {
        let mut pointer = Pointer::unset();
        (pointer.sequence, pointer.stamp) = (sequence, sequence * 1000 + serving);
        pointer.serving = Some(serving);
        pointer
    }

    fn announcing(objects: &Objects) -> Announcing<'_> {
        Announcing {
            objects,
            clock: &SystemClock,
            random: &SystemRandom,
        }
    }

    /// Writes the pointer as a swap does.
    fn write(objects: &Objects, table: &TableName, pointer: &Pointer) {
        let (bytes, _) = seal(pointer).unwrap();
        let name = pointer_name(table);
        let put = objects.put(&name, bytes.into());
        objects.runtime().block_on(put).unwrap();
    }

    #[test]
    fn concurrent_announcements_are_all_kept() {
        let objects = objects();
        std::thread::scope(|scope| {
            for number in 0..12 {
                let objects = &objects;
                scope.spawn(move || {
                    let table = name(&format!("t{number}"));
                    for sequence in 1..=3 {
                        let moved = pointer(sequence, number);
                        write(objects, &table, &moved);
                        announcing(objects).pointer(&table, &moved).unwrap();
                    }
                });
            }
        });
        let made = announcing(&objects).made().unwrap();
        assert_eq!(made.tables.len(), 12);
        for (number, entry) in (0..12).map(|n| (n, &made.tables[&name(&format!("t{n}"))])) {
            assert_eq!(Some(*entry), TableEntry::of(&pointer(3, number)));
        }
    }

    #[test]
    fn a_delayed_writer_undoes_nothing() {
        let objects = objects();
        let (table, early, late) = (name("t"), pointer(7, 1), pointer(8, 2));
        write(&objects, &table, &late);
        announcing(&objects).pointer(&table, &late).unwrap();
        let now = announcing(&objects).pointer(&table, &early).unwrap();
        assert_eq!(now.tables.get(&table).copied(), TableEntry::of(&late));
        // Dropped and created again: its sequence begins again.
        let recreated = pointer(1, 1);
        write(&objects, &table, &recreated);
        let now = announcing(&objects).pointer(&table, &recreated).unwrap();
        assert_eq!(now.tables.get(&table).copied(), TableEntry::of(&recreated));
        let mut tombstone = pointer(2, 1);
        (tombstone.dropped, tombstone.serving) = (true, None);
        write(&objects, &table, &tombstone);
        let now = announcing(&objects).pointer(&table, &tombstone).unwrap();
        assert!(now.tables.is_empty());
    }

    #[test]
    fn a_damaged_document_is_rebuilt_from_the_pointers_and_a_newer_one_is_kept() {
        let objects = objects();
        let put = |content: Bytes| {
            let put = objects.put(TABLES, content);
            objects.runtime().block_on(put).unwrap();
        };
        write(&objects, &name("a"), &pointer(1, 1));
        put(Bytes::from_static(b"junk"));
        let entry = NodeEntry {
            tls: true,
            noted_unix_ms: SystemClock.unix_ms(),
        };
        let made = announcing(&objects).node("h:1", Some(entry)).unwrap();
        assert!(made.tables.contains_key(&name("a")) && made.nodes["h:1"].tls);
        let made = announcing(&objects).node("h:1", None).unwrap();
        assert!(made.nodes.is_empty());
        let newer = forebay_engine::seal_text(b"{\"forebay_tables\": 2}\n".to_vec());
        put(newer.into());
        let refused = announcing(&objects).made();
        assert!(matches!(refused, Err(AnnounceError::Document(_))));
    }
}
