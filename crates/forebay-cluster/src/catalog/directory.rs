//! The catalog of a store in a directory that all nodes share.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::lock_within;
use forebay_io::{Clock, Disk, Lock, dir_of, replace_file};
use xxhash_rust::xxh3::xxh3_128;

use super::{Catalog, SeenTag, WriteOutcome};

/// How long a writer and a reader wait for the lock. A writer holds the lock only for one write.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_PATIENCE: Duration = Duration::from_secs(1);

/// A catalog in a shared directory.
///
/// Writers exclude each other with a lock of the operating system (flock). Readers take no lock,
/// because a writer replaces each document by renaming.
#[derive(Debug)]
pub struct DirectoryCatalog {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    root: PathBuf,
}

impl DirectoryCatalog {
    /// Creates the catalog of the store in the directory `store`.
    pub fn new(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, store: &Path) -> Self {
        Self {
            disk,
            clock,
            root: store.join("cluster"),
        }
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        // If the store is missing (a share that is not mounted), the catalog does not create it.
        let store = dir_of(&self.root);
        if !self.disk.exists(store)? {
            let text = format!("{} is not there", store.display());
            return Err(io::Error::other(text));
        }
        self.disk.create_dir_all(&self.root)?;
        self.lock_within(PATIENCE)?.map_err(|holder| {
            let path = self.lock_path();
            io::Error::other(format!("{} is held for {holder}", path.display()))
        })
    }

    fn lock_path(&self) -> PathBuf {
        self.root.join("lock")
    }

    fn lock_within(&self, patience: Duration) -> io::Result<Result<Box<dyn Lock>, String>> {
        let (disk, clock, what) = (&*self.disk, &*self.clock, "a write to the catalog");
        lock_within(disk, clock, &self.lock_path(), what, patience).map_err(io::Error::other)
    }
}

/// Returns whether the file is absent. A path below a plain file, which is no store, counts as
/// absent.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

impl Catalog for DirectoryCatalog {
    fn get(&self, name: &str) -> io::Result<Option<(Bytes, SeenTag)>> {
        match self.disk.read(&self.root.join(name)) {
            Ok(bytes) => {
                let tag = tag(&bytes);
                Ok(Some((bytes.into(), tag)))
            }
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn put_if(
        &self,
        name: &str,
        content: Bytes,
        seen: Option<&SeenTag>,
    ) -> io::Result<WriteOutcome> {
        let path = self.root.join(name);
        let _lock = self.lock()?;
        let found = self.get(name)?.map(|(_, tag)| tag);
        let wanted = tag(&content);
        if found.as_ref() == Some(&wanted) {
            return Ok(WriteOutcome::Done(wanted));
        }
        if found.as_ref() != seen {
            return Ok(WriteOutcome::Changed);
        }
        if let Some(dir) = path.parent() {
            self.disk.create_dir_all(dir)?;
        }
        replace_file(&*self.disk, &path, &content)?;
        Ok(WriteOutcome::Done(wanted))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        match self.disk.list(&self.root.join(dir)) {
            Ok(mut names) => {
                // Skips unfinished files of a writer that died.
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

    fn held_up_by(&self) -> io::Result<Option<String>> {
        let held = |holder| format!("{} is held for {holder}", self.lock_path().display());
        Ok(self.lock_within(LOOK_PATIENCE)?.err().map(held))
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
    use forebay_io::sim::{HandClock, SimDisk};

    use super::*;

    #[test]
    fn a_document_is_replaced_only_with_its_newest_tag() {
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
        let WriteOutcome::Done(first) = put("one", None) else {
            panic!("the document existed already");
        };
        assert_eq!(put("two", None), WriteOutcome::Changed);
        // A writer repeats a write if it does not know the result of the first try.
        assert_eq!(put("one", None), WriteOutcome::Done(first.clone()));
        let WriteOutcome::Done(second) = put("two", Some(&first)) else {
            panic!("the tag was the newest");
        };
        assert_eq!(put("three", Some(&first)), WriteOutcome::Changed);
        let (bytes, seen) = catalog.get("head").unwrap().unwrap();
        assert_eq!((&bytes[..], &seen), (&b"two"[..], &second));
        catalog.put_if("requests/a", "x".into(), None).unwrap();
        assert_eq!(catalog.list("requests").unwrap(), ["a"]);
        catalog.remove("requests/a").unwrap();
        catalog.remove("requests/a").unwrap();
        assert!(catalog.list("requests").unwrap().is_empty());
        assert!(catalog.list("nowhere").unwrap().is_empty());
        assert_eq!(catalog.held_up_by().unwrap(), None);
    }

    #[test]
    fn the_holder_of_the_lock_is_named() {
        let (disk, clock) = (SimDisk::new(), Arc::new(HandClock::default()));
        disk.create_dir_all(Path::new("/store/cluster")).unwrap();
        let catalog = DirectoryCatalog::new(Arc::new(disk.clone()), clock, Path::new("/store"));
        let path = Path::new("/store/cluster/lock");
        let held = disk.lock(path, "a write by process 7").unwrap().unwrap();
        let words = "/store/cluster/lock is held for a write by process 7";
        assert_eq!(catalog.held_up_by().unwrap().as_deref(), Some(words));
        let refused = catalog.put_if("head", "one".into(), None).unwrap_err();
        assert_eq!(refused.to_string(), words);
        drop(held);
        catalog.put_if("head", "one".into(), None).unwrap();
    }
}
