//! Accesses the locations in which files are searched: this machine's file system, or a bucket.

use std::error::Error as _;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, PathBuf};
use std::sync::Arc;

use forebay_objects::{Address, Patience};
use futures::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Error::{BadSegment, NonUnicode};
use object_store::path::Path;
use object_store::{Error, ListResult, ObjectMeta, ObjectStore, ObjectStoreExt};
use percent_encoding::percent_decode_str;
use tokio::runtime::Runtime;

use crate::sources::error::SourceError;
use crate::sources::store::Store;

/// Advice for a bucket that returns nothing.
const VARIABLES: &str = "; docs/how-to/use-object-storage.md says which variables it takes";

#[derive(Debug)]
pub struct Location {
    /// The store from which files are read.
    pub store: Arc<Store>,
    /// The store in which files are searched. For a bucket that never answers, this gives up sooner
    /// than the store that reads, which waits longer for a bucket that stops answering.
    objects: Arc<dyn ObjectStore>,
    /// The prefix of names, such as `s3://bucket`; `None` for this machine.
    base: Option<String>,
}

/// The most bytes of a written key: a key has 1,024 bytes at most, each of which may be
/// percent-encoded.
const MOST_KEY_BYTES: usize = 3 * 1024 + 1;

impl Location {
    pub fn here(store: Store) -> Location {
        Location {
            objects: store.objects.clone(),
            store: Arc::new(store),
            base: None,
        }
    }

    pub fn bucket(
        base: &str,
        runtime: Arc<Runtime>,
        source: &str,
    ) -> Result<Location, SourceError> {
        let address = Address::parse(base).map_err(|error| {
            let text = error.to_string();
            SourceError::Address {
                source_text: source.to_owned(),
                reason: text.trim_start_matches(&format!("{base}: ")).to_owned(),
            }
        })?;
        if source.len() > base.len() + MOST_KEY_BYTES {
            return Err(SourceError::Address {
                source_text: source.chars().take(40).chain("...".chars()).collect(),
                reason: format!("it has {} bytes, more than a key can have", source.len()),
            });
        }
        let connect = |patience| {
            forebay_objects::bucket(&address, patience).map_err(|error| SourceError::Remote {
                source_text: source.to_owned(),
                hint: VARIABLES,
                error,
            })
        };
        Ok(Location {
            objects: connect(Patience::Short)?,
            store: Arc::new(Store {
                objects: connect(Patience::Long)?,
                runtime,
                far: true,
                secret: None,
            }),
            base: Some(base.to_owned()),
        })
    }

    pub fn is_far(&self) -> bool {
        self.base.is_some()
    }

    /// Returns the path of a text, if it is a valid one.
    pub fn path(&self, text: &str) -> Option<Path> {
        match self.base {
            None => Path::from_absolute_path(absolute(text).ok()?).ok(),
            Some(_) => Path::parse(text).ok(),
        }
    }

    /// Returns a path in the form of a pattern's text: absolute.
    pub fn whole(&self, text: &str) -> Option<String> {
        match self.base {
            None => Some(absolute(text).ok()?.to_str()?.to_owned()),
            Some(_) => Some(text.to_owned()),
        }
    }

    /// Returns the name of a file for messages: the source as given if it is that file. Otherwise
    /// it is the full path or URL, shortened below the working directory.
    pub fn name(&self, source: &str, location: &Path) -> Arc<str> {
        if let Some(base) = &self.base {
            return format!("{base}/{location}").into();
        }
        let file = location.filename().unwrap_or_default();
        if source.ends_with(file) && !source.contains('*') {
            return Arc::from(source);
        }
        match local_path(location) {
            Some(path) => shortened(path).into(),
            None => format!("/{location}").into(),
        }
    }

    /// Returns the name of a directory, in a form to be given to another program.
    pub fn directory_name(&self, location: &Path) -> String {
        match (&self.base, local_path(location)) {
            (Some(base), _) => format!("{base}/{location}"),
            (None, Some(path)) => path.to_string_lossy().into_owned(),
            (None, None) => format!("/{location}"),
        }
    }

    /// Returns whether there can be anything below a path. For a bucket, only a listing shows that.
    pub fn may_hold(&self, path: &Path) -> bool {
        self.is_far() || self.is_directory(path)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "sources are the user's files, not those of a store"
    )]
    pub fn is_directory(&self, path: &Path) -> bool {
        !self.is_far() && local_path(path).is_some_and(|path| path.is_dir())
    }

    /// Fails if a text names an object on this machine that cannot be a source.
    pub fn check(&self, source: &str, text: &str) -> Result<(), SourceError> {
        let path = std::path::absolute(text).ok();
        let Some(path) = path.filter(|_| !self.is_far()) else {
            return Ok(());
        };
        let source_text = source.to_owned();
        match path.metadata() {
            Ok(found) => match special(found.file_type()) {
                Some(what) => Err(SourceError::NoFile { source_text, what }),
                None if self.path(text).is_none() => Err(SourceError::Name { source_text }),
                None => Ok(()),
            },
            // A search may find files that it matches.
            Err(error) if is_absence(&error) => Ok(()),
            Err(error) => Err(SourceError::Io {
                file: source_text,
                error,
            }),
        }
    }

    /// Returns the path on this machine.
    pub fn local(&self, path: &Path) -> Option<PathBuf> {
        local_path(path).filter(|_| !self.is_far())
    }

    /// Runs [`Location::check`] on a file that was found and whose size is 0.
    pub fn check_empty(&self, name: &str, path: &Path) -> Result<(), SourceError> {
        match local_path(path).as_deref().and_then(|path| path.to_str()) {
            Some(path) if !self.is_far() => self.check(name, path),
            _ => Ok(()),
        }
    }

    pub fn head(&self, path: &Path) -> Result<Option<ObjectMeta>, Error> {
        let head = self.objects.head(path);
        match self.store.runtime.block_on(head) {
            Ok(meta) => Ok(Some(meta)),
            Err(Error::NotFound { .. }) => Ok(None),
            // A name below a file, or one that no file can have.
            Err(error) if !self.is_far() && system_error(&error).is_none_or(is_absence) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns all files below a path.
    pub fn list(&self, path: &Path) -> Result<Vec<ObjectMeta>, Error> {
        if !self.may_hold(path) {
            return Ok(Vec::new());
        }
        let all = self.objects.list(Some(path)).try_collect::<Vec<_>>();
        Ok(without_markers(self.store.runtime.block_on(all)?, path))
    }

    /// Returns whether there is any file below a path.
    pub fn holds_any(&self, path: &Path) -> Result<bool, Error> {
        if !self.may_hold(path) {
            return Ok(false);
        }
        let mut listed = self.objects.list(Some(path));
        let first = self.store.runtime.block_on(listed.next());
        Ok(first.transpose()?.is_some())
    }

    /// Returns the files and directories directly below a path.
    pub fn level(&self, path: &Path) -> Result<ListResult, Error> {
        if !self.may_hold(path) {
            return Ok(ListResult {
                common_prefixes: Vec::new(),
                objects: Vec::new(),
                extensions: Default::default(),
            });
        }
        let listed = self.objects.list_with_delimiter(Some(path));
        self.store.runtime.block_on(listed)
    }

    pub fn error(&self, source: &str, error: Error) -> SourceError {
        if let (
            false,
            Error::InvalidPath {
                source: BadSegment { path, .. },
            },
        ) = (self.is_far(), &error)
        {
            return SourceError::Name {
                source_text: from_root(path),
            };
        }
        if let (
            false,
            Error::InvalidPath {
                source: NonUnicode { path, .. },
            },
        ) = (self.is_far(), &error)
        {
            let encoded = from_root(path);
            let (directory, file) = encoded.rsplit_once('/').unwrap_or_default();
            let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
            return SourceError::NotUnicode {
                directory: decoded(if directory.is_empty() { "/" } else { directory }),
                file: format!("{:?}", decoded(file)),
            };
        }
        if let (false, Some(system)) = (self.is_far(), system_error(&error)) {
            return SourceError::Io {
                file: source.to_owned(),
                error: io::Error::new(system.kind(), what_failed(&error, system)),
            };
        }
        SourceError::Remote {
            source_text: source.to_owned(),
            hint: if self.is_far() { VARIABLES } else { "" },
            error: self.store.said(error),
        }
    }
}

/// Returns an absolute path of this machine: errors of the library omit its first slash.
fn from_root(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

/// Returns the system's error in an error of the file store.
fn system_error(error: &Error) -> Option<&io::Error> {
    let chain = std::iter::successors(error.source(), |error| (*error).source());
    chain.filter_map(|error| error.downcast_ref()).last()
}

/// Returns the text of the system's error, with the directory if a listing failed.
fn what_failed(error: &Error, system: &io::Error) -> String {
    let said = error.source().map(ToString::to_string).unwrap_or_default();
    match said.split_once("IO error for operation on ") {
        Some((_, listing)) => listing.to_owned(),
        None => system.to_string(),
    }
}

/// Returns whether the error says that the name does not exist.
fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    matches!(
        error.kind(),
        NotFound | NotADirectory | InvalidInput | InvalidFilename
    )
}

/// Describes a file that can be read at most once, if at all, and has no size.
pub fn special(kind: std::fs::FileType) -> Option<&'static str> {
    Some(match kind {
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => return None,
    })
}

fn local_path(location: &Path) -> Option<PathBuf> {
    LocalFileSystem::new().path_to_filesystem(location).ok()
}

/// Shortens a path below the working directory.
fn shortened(path: PathBuf) -> String {
    let here = std::env::current_dir().ok();
    let short = here.and_then(|here| path.strip_prefix(here).ok().map(PathBuf::from));
    short.unwrap_or(path).to_string_lossy().into_owned()
}

/// Removes the empty objects that some tools create for directories.
fn without_markers(mut found: Vec<ObjectMeta>, path: &Path) -> Vec<ObjectMeta> {
    found.sort_by(|a, b| a.location.cmp(&b.location));
    let marker = |meta: &ObjectMeta| {
        let below = format!("{}/", meta.location);
        let after = found.partition_point(|other| other.location.as_ref() < below.as_str());
        let next = found.get(after);
        let holds = next.is_some_and(|next| next.location.as_ref().starts_with(&below));
        meta.size == 0 && (holds || meta.location == *path)
    };
    let markers: Vec<bool> = found.iter().map(marker).collect();
    let mut markers = markers.into_iter();
    found.retain(|_| !markers.next().unwrap_or(false));
    found
}

/// Returns an absolute path. `..` is resolved in the file system, because links may come before it.
fn absolute(text: &str) -> io::Result<PathBuf> {
    let path = std::path::absolute(text)?;
    let parts: Vec<Component<'_>> = path.components().collect();
    let Some(last) = parts.iter().rposition(|part| *part == Component::ParentDir) else {
        return Ok(path);
    };
    let (up, rest) = parts.split_at(last + 1);
    let up: PathBuf = up.iter().collect();
    Ok(up.canonicalize()?.join(rest.iter().collect::<PathBuf>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_path_is_not_reported_absent() {
        let location = Location::here(Store::local().unwrap());
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(!is_absence(&denied));
        let denied = Error::Generic {
            store: "of files",
            source: Box::new(denied),
        };
        let said = location.error("a.csv", denied);
        assert_eq!(said.to_string(), "a.csv: cannot be read");
        let said = said.source().unwrap().to_string();
        assert!(said.starts_with("permission denied"), "{said}");
    }
}
