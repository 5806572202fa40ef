//! Refuses files of Delta, Iceberg and Hudi tables.
//!
//! Only a table's log says which of its files, and which of their rows, belong to the table. Such
//! files are therefore never read individually.

use std::collections::BTreeMap;

use object_store::path::Path;

use super::ExpandedSource;
use super::location::Location;
use crate::sources::error::SourceError;

/// A table format of data lakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lake {
    Delta,
    Iceberg,
    Hudi,
}

impl Lake {
    fn name(self) -> &'static str {
        match self {
            Lake::Delta => "a Delta table",
            Lake::Iceberg => "an Iceberg table",
            Lake::Hudi => "a Hudi table",
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Lake::Delta => "_delta_log",
            Lake::Iceberg => "metadata/*.metadata.json",
            Lake::Hudi => ".hoodie",
        }
    }

    /// Returns advice for such a table.
    fn advice(self, root: &str) -> String {
        let push = |data: &str| format!("forebay.push({data}, \"TABLE\", key=\"...\")");
        match self {
            Lake::Delta => format!(
                "push it from Python, with the package deltalake: {}, or of an older version {}",
                push(&format!("\"{root}\"")),
                push(&format!("deltalake.DeltaTable(\"{root}\", version=N)"))
            ),
            Lake::Iceberg => format!(
                "push it from Python, with the package pyiceberg: {}, or instead of the table the path of one of \
                 its metadata/*.metadata.json",
                push("load_catalog(\"CATALOG\").load_table(\"NAMESPACE.NAME\")"),
            ),
            Lake::Hudi => "push it by a program that reads such tables, as Spark does: \
                           forebay.spark.push(df, \"TABLE\", key=\"...\")"
                .to_owned(),
        }
    }
}

/// The tables found while one source is expanded.
#[derive(Debug)]
pub struct Lakes<'a> {
    location: &'a Location,
    source: &'a str,
    /// The tables by their directories.
    met: BTreeMap<String, Lake>,
    /// Directories that mark an Iceberg table if they contain the files of one.
    unclear: Vec<Path>,
}

impl<'a> Lakes<'a> {
    pub fn new(location: &'a Location, source: &'a str) -> Lakes<'a> {
        Lakes {
            location,
            source,
            met: BTreeMap::new(),
            unclear: Vec::new(),
        }
    }

    pub fn any(&self) -> bool {
        !self.met.is_empty()
    }

    /// Inspects a file or directory of a listing.
    pub fn see(&mut self, path: &Path) {
        let names: Vec<String> = path.parts().map(|part| part.as_ref().to_owned()).collect();
        for (at, name) in names.iter().enumerate() {
            let lake = match name.as_str() {
                "_delta_log" => Lake::Delta,
                ".hoodie" => Lake::Hudi,
                "metadata" if at + 1 == names.len() => {
                    self.unclear.push(path.clone());
                    return;
                }
                "metadata" if is_metadata(&names[at + 1]) => Lake::Iceberg,
                _ => continue,
            };
            return self.add(names[..at].join("/"), lake);
        }
    }

    /// Some tables have two formats.
    fn add(&mut self, root: String, lake: Lake) {
        let met = self.met.entry(root).or_insert(lake);
        *met = lake.min(*met);
    }

    /// Fails if a file is in a table that was found, or the whole source is in one.
    pub fn refuse(&mut self, expanded: &ExpandedSource) -> Result<(), SourceError> {
        self.look_around(&expanded.root)?;
        for dir in std::mem::take(&mut self.unclear) {
            self.look_for_metadata(&dir)?;
        }
        let below = |root: &str, path: &Path| {
            let rest = path.as_ref().strip_prefix(root);
            rest.is_some_and(|rest| root.is_empty() || rest.is_empty() || rest.starts_with('/'))
        };
        let hit = self.met.iter().find(|(root, _)| {
            let files = expanded.files.iter().map(|meta| &meta.location);
            let holds_file = files.chain([&expanded.root]).any(|path| below(root, path));
            holds_file || expanded.files.is_empty()
        });
        match hit {
            None => Ok(()),
            Some((root, lake)) => Err(self.refusal(root, *lake)),
        }
    }

    fn refusal(&self, root: &str, lake: Lake) -> SourceError {
        let root = Path::parse(root).unwrap_or_default();
        let name = self.location.directory_name(&root);
        SourceError::Lake {
            advice: lake.advice(&name),
            root: name,
            what: lake.name(),
            mark: lake.mark(),
        }
    }

    /// Checks whether the directory, or one above it, is such a table.
    fn look_around(&mut self, path: &Path) -> Result<(), SourceError> {
        let mut dir = Some(path.clone());
        while let Some(at) = dir {
            for (mark, lake) in [("_delta_log", Lake::Delta), (".hoodie", Lake::Hudi)] {
                let log = at.clone().join(mark);
                let is_one = self.location.is_directory(&log) || self.holds_any(&log)?;
                if is_one {
                    self.add(at.as_ref().to_owned(), lake);
                }
            }
            self.look_for_metadata(&at.clone().join("metadata"))?;
            dir = parent(&at);
        }
        Ok(())
    }

    fn holds_any(&self, path: &Path) -> Result<bool, SourceError> {
        let held = self.location.holds_any(path);
        held.map_err(|error| self.location.error(self.source, error))
    }

    fn look_for_metadata(&mut self, dir: &Path) -> Result<(), SourceError> {
        let listed = self.location.level(dir);
        let listed = listed.map_err(|error| self.location.error(self.source, error))?;
        for meta in listed.objects {
            self.see(&meta.location);
        }
        Ok(())
    }
}

fn is_metadata(name: &str) -> bool {
    name.ends_with(".metadata.json") || name.ends_with(".metadata.json.gz")
}

/// Returns the parent directory of a path; the root has none.
fn parent(path: &Path) -> Option<Path> {
    let (above, _) = match path.as_ref() {
        "" => return None,
        text => text.rsplit_once('/').unwrap_or(("", text)),
    };
    Path::parse(above).ok()
}
