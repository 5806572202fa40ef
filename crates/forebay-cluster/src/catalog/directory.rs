//! A catalog in a directory that all nodes share.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_io::{Clock, Disk, Lock, dir_of, replace_file};
use xxhash_rust::xxh3::xxh3_128;

use super::{Catalog, SeenTag, Written};

/// Between two tries to get the lock, and how long one is waited for. It is held for the moment of
/// one write.
const PAUSE: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(10);

/// Writers take turns by a lock of the system (flock). Readers need none: documents are replaced by
/// renaming.
#[derive(Debug)]
pub struct DirectoryCatalog {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    root: PathBuf,
}

impl DirectoryCatalog {
    /// The catalog of the store in a directory.
    pub fn new(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, store: &Path) -> Self {
        Self {
            disk,
            clock,
            root: store.join("cluster"),
        }
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        // One that is gone (a share that is not mounted) is not made anew.
        let store = dir_of(&self.root);
        if !self.disk.exists(store)? {
            let text = format!("{} is not there", store.display());
            return Err(io::Error::other(text));
        }
        self.disk.create_dir_all(&self.root)?;
        let path = self.root.join("lock");
        let end = self.clock.monotonic() + PATIENCE;
        loop {
            match self.disk.lock(&path, "a write to the catalog")? {
                Ok(lock) => return Ok(lock),
                Err(_) if self.clock.monotonic() < end => self.clock.sleep(PAUSE),
                Err(holder) => {
                    let path = path.display();
                    let text = format!("{path} is held by another process ({holder})");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
            }
        }
    }
}

impl Catalog for DirectoryCatalog {
    fn get(&self, name: &str) -> io::Result<Option<(Bytes, SeenTag)>> {
        match self.disk.read(&self.root.join(name)) {
            Ok(bytes) => {
                let tag = tag(&bytes);
                Ok(Some((bytes.into(), tag)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn put_if(&self, name: &str, content: Bytes, seen: Option<&SeenTag>) -> io::Result<Written> {
        let path = self.root.join(name);
        let _lock = self.lock()?;
        let found = self.get(name)?.map(|(_, tag)| tag);
        let wanted = tag(&content);
        if found.as_ref() == Some(&wanted) {
            return Ok(Written::Done(wanted));
        }
        if found.as_ref() != seen {
            return Ok(Written::Changed);
        }
        if let Some(dir) = path.parent() {
            self.disk.create_dir_all(dir)?;
        }
        replace_file(&*self.disk, &path, &content)?;
        Ok(Written::Done(wanted))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        match self.disk.list(&self.root.join(dir)) {
            Ok(mut names) => {
                // What a writer that died left unfinished.
                names.retain(|name| !name.starts_with('.'));
                names.sort_unstable();
                Ok(names)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn is_near(&self) -> bool {
        true
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match self.disk.remove(&self.root.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn tag(bytes: &[u8]) -> SeenTag {
    SeenTag(format!("{:032x}", xxh3_128(bytes)))
}

#[cfg(test)]
mod tests {
    use forebay_io::SystemClock;
    use forebay_io::sim::SimDisk;

    use super::*;

    #[test]
    fn a_document_is_replaced_by_who_has_seen_it() {
        let disk = SimDisk::new();
        let catalog = DirectoryCatalog::new(
            Arc::new(disk.clone()),
            Arc::new(SystemClock),
            Path::new("/store"),
        );
        assert!(catalog.put_if("head", "one".into(), None).is_err());
        disk.create_dir_all(Path::new("/store")).unwrap();
        assert_eq!(catalog.get("head").unwrap(), None);
        let put = |content: &'static str, seen: Option<&SeenTag>| {
            catalog.put_if("head", content.into(), seen).unwrap()
        };
        let Written::Done(first) = put("one", None) else {
            panic!("nothing was there");
        };
        assert_eq!(put("two", None), Written::Changed);
        // The same again is what a writer does that does not know what came of the first try.
        assert_eq!(put("one", None), Written::Done(first.clone()));
        let Written::Done(second) = put("two", Some(&first)) else {
            panic!("it was seen");
        };
        assert_eq!(put("three", Some(&first)), Written::Changed);
        let (bytes, seen) = catalog.get("head").unwrap().unwrap();
        assert_eq!((&bytes[..], &seen), (&b"two"[..], &second));
        catalog.put_if("requests/a", "x".into(), None).unwrap();
        assert_eq!(catalog.list("requests").unwrap(), ["a"]);
        catalog.remove("requests/a").unwrap();
        catalog.remove("requests/a").unwrap();
        assert!(catalog.list("requests").unwrap().is_empty());
        assert!(catalog.list("nowhere").unwrap().is_empty());
    }
}
