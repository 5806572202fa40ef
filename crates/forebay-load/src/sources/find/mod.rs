//! Expands sources to files: paths, directories, globs, URLs and standard input.
//!
//! A directory gives the files below it that have known endings. Names that begin with `.` or `_`
//! are used only if written out. Sources keep the order in which they were given. The files of one
//! source are sorted by name. A file that two sources name is read once.

mod expand;
pub(super) mod glob;
mod lake;
mod location;
mod web;

use std::collections::{HashMap, HashSet};
use std::io::IsTerminal;
use std::sync::Arc;

use object_store::ObjectMeta;
use object_store::path::Path;
use tokio::runtime::Runtime;

use super::SourceOptions;
use super::blob::{Blob, Storage};
use super::error::SourceError;
use super::hive::{self, Partition};
use super::store::{Object, Store};
use expand::expand;
use location::Location;
pub(super) use web::shown;

/// The name of standard input, as a source and in messages.
const STDIN: &str = "-";
const STDIN_NAME: &str = "standard input";

/// A file of a source.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub blob: Blob,
    /// The columns given by the directories between source and file.
    pub partitions: Vec<Partition>,
}

/// The files that one source names.
#[derive(Debug)]
struct ExpandedSource {
    files: Vec<ObjectMeta>,
    /// The part of the source that has no wildcard. Directories below it may give columns.
    root: Path,
}

/// Returns the files that sources name.
pub(super) fn find(
    sources: &[String],
    options: &SourceOptions,
) -> Result<Vec<FoundFile>, SourceError> {
    let mut finder = Finder {
        options,
        locations: HashMap::new(),
        runtime: None,
        seen: HashSet::new(),
        found: Vec::new(),
    };
    for source in sources {
        finder.add(source)?;
    }
    match finder.found.is_empty() {
        true => Err(SourceError::NoSource),
        false => Ok(finder.found),
    }
}

struct Finder<'a> {
    options: &'a SourceOptions,
    /// The opened locations, by the prefix of names on them.
    locations: HashMap<String, Arc<Location>>,
    /// The runtime that waits for all remote stores.
    runtime: Option<Arc<Runtime>>,
    /// The files found, by their store's prefix.
    seen: HashSet<(String, Path)>,
    found: Vec<FoundFile>,
}

impl Finder<'_> {
    fn add(&mut self, source: &str) -> Result<(), SourceError> {
        if source == STDIN {
            return self.add_stdin();
        }
        let Some((scheme, rest)) = source.split_once("://") else {
            return self.add_from("", source, source);
        };
        match scheme {
            "file" => {
                // An invalid path of this machine cannot exist either.
                let path = forebay_objects::path_of_file_url(rest);
                self.add_from("", path.as_deref().unwrap_or(rest), source)
            }
            "http" | "https" => self.add_web(source),
            _ if forebay_objects::is_remote(source) => {
                let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
                self.add_from(&format!("{scheme}://{bucket}"), key, source)
            }
            _ => Err(SourceError::Scheme {
                source_text: source.to_owned(),
            }),
        }
    }

    /// Adds the files of `text` at the location of this machine or of a bucket.
    fn add_from(&mut self, base: &str, text: &str, source: &str) -> Result<(), SourceError> {
        let location = self.location(base, source)?;
        let any_ending = self.options.format.is_some();
        let mut expanded = expand(&location, source, text, any_ending)?;
        (expanded.files).sort_by(|a, b| a.location.cmp(&b.location));
        for meta in expanded.files {
            let path = meta.location;
            if !self.seen.insert((base.to_owned(), path.clone())) {
                continue;
            }
            let name = location.name(source, &path);
            if meta.size == 0 {
                location.check_empty(&name, &path)?;
            }
            let dirs = path.prefix_match(&expanded.root).into_iter().flatten();
            let mut names: Vec<String> = dirs.map(|part| part.as_ref().to_owned()).collect();
            names.pop();
            let partitions = hive::partitions(&names, &name)?;
            let object = Object {
                store: location.store.clone(),
                path,
                tag: meta.e_tag.filter(|tag| strong(tag)),
                modified: meta.last_modified,
            };
            let blob = Blob {
                storage: Storage::Stored(object),
                name,
                size_bytes: meta.size,
            };
            self.found.push(FoundFile { blob, partitions });
        }
        Ok(())
    }

    fn location(&mut self, base: &str, source: &str) -> Result<Arc<Location>, SourceError> {
        if let Some(location) = self.locations.get(base) {
            return Ok(location.clone());
        }
        let location = Arc::new(match base {
            "" => Location::here(Store::local().map_err(SourceError::Runtime)?),
            _ => Location::bucket(base, self.runtime()?, source)?,
        });
        self.locations.insert(base.to_owned(), location.clone());
        Ok(location)
    }

    fn runtime(&mut self) -> Result<Arc<Runtime>, SourceError> {
        if let Some(runtime) = &self.runtime {
            return Ok(runtime.clone());
        }
        let runtime = Arc::new(Store::far_runtime().map_err(SourceError::Runtime)?);
        self.runtime = Some(runtime.clone());
        Ok(runtime)
    }

    fn add_web(&mut self, source: &str) -> Result<(), SourceError> {
        if !self.seen.insert((source.to_owned(), Path::default())) {
            return Ok(());
        }
        let runtime = self.runtime()?;
        let blob = web::open(source, runtime, &self.options.spool)?;
        self.found.push(FoundFile {
            blob,
            partitions: Vec::new(),
        });
        Ok(())
    }

    fn add_stdin(&mut self) -> Result<(), SourceError> {
        if !self.seen.insert((STDIN.to_owned(), Path::default())) {
            return Ok(());
        }
        let spooled = self.options.spool.keep(STDIN, STDIN_NAME, || {
            let input = std::io::stdin();
            match input.is_terminal() {
                true => Err(SourceError::Terminal),
                false => Ok(input.lock()),
            }
        })?;
        let blob = Blob {
            size_bytes: spooled.size_bytes,
            storage: Storage::Spooled(spooled),
            name: STDIN_NAME.into(),
        };
        self.found.push(FoundFile {
            blob,
            partitions: Vec::new(),
        });
        Ok(())
    }
}

/// Returns whether a tag identifies content exactly, so that a store accepts it as a condition.
fn strong(tag: &str) -> bool {
    !tag.starts_with("W/")
}
