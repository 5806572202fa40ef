//! Expands one source to the files it names at its location.

use std::fs;
use std::io;
use std::path::PathBuf;

use object_store::ObjectMeta;
use object_store::path::Path;

use super::ExpandedSource;
use super::glob::{hidden, is_pattern, matches_name, matches_parts};
use super::lake::Lakes;
use super::location::{Location, special};
use crate::near;
use crate::sources::error::SourceError;
use crate::sources::format::{Format, Packing};

struct Search<'a> {
    location: &'a Location,
    source: &'a str,
    lakes: Lakes<'a>,
}

/// Expands the source `text`, in the form of the location. With `any_ending`, directories give all
/// their files.
pub fn expand(
    location: &Location,
    source: &str,
    text: &str,
    any_ending: bool,
) -> Result<ExpandedSource, SourceError> {
    let lakes = Lakes::new(location, source);
    let mut search = Search {
        location,
        source,
        lakes,
    };
    let expanded = search.expand(text, any_ending)?;
    search.lakes.refuse(&expanded)?;
    Ok(expanded)
}

impl Search<'_> {
    fn failed(&self, error: object_store::Error) -> SourceError {
        self.location.error(self.source, error)
    }

    fn expand(&mut self, text: &str, any_ending: bool) -> Result<ExpandedSource, SourceError> {
        self.location.check(self.source, text)?;
        if let Some(root) = self.location.path(text)
            && let Some(files) = self.exactly(text, &root, any_ending)?
        {
            return Ok(ExpandedSource { files, root });
        }
        if !is_pattern(text) {
            return Err(self.missing(text));
        }
        let whole = self.location.whole(text);
        let expanded = whole.map(|whole| self.glob(&whole)).transpose()?;
        match expanded.flatten() {
            None => Err(self.missing(text)),
            Some(expanded) if expanded.files.is_empty() => Err(SourceError::NoMatch {
                source_text: self.source.to_owned(),
            }),
            Some(expanded) => Ok(expanded),
        }
    }

    /// Returns the file of exactly this name, or the files of the directory of exactly this name.
    fn exactly(
        &mut self,
        text: &str,
        path: &Path,
        any_ending: bool,
    ) -> Result<Option<Vec<ObjectMeta>>, SourceError> {
        let directory = path.as_ref().is_empty() || self.location.is_far() && text.ends_with('/');
        let head = match directory {
            true => None,
            false => self.location.head(path).map_err(|e| self.failed(e))?,
        };
        // An empty object may represent a directory.
        if let Some(meta) = &head
            && (meta.size > 0 || !self.location.is_far())
        {
            return Ok(Some(vec![meta.clone()]));
        }
        let below = self.location.list(path).map_err(|e| self.failed(e))?;
        match (below.is_empty(), head) {
            (false, _) => self.directory(path, below, any_ending).map(Some),
            (true, Some(meta)) => Ok(Some(vec![meta])),
            (true, None) if self.location.is_directory(path) => {
                self.directory(path, below, any_ending).map(Some)
            }
            (true, None) => Ok(None),
        }
    }

    fn directory(
        &mut self,
        path: &Path,
        below: Vec<ObjectMeta>,
        any_ending: bool,
    ) -> Result<Vec<ObjectMeta>, SourceError> {
        for meta in &below {
            self.lakes.see(&meta.location);
        }
        let is_known =
            |name: &str| any_ending || Format::of_name(Packing::of_name(name).1).is_some();
        let known = |meta: &ObjectMeta| is_known(meta.location.filename().unwrap_or_default());
        if let Some(dir) = self.location.local(path) {
            refuse_passed_over(dir, &is_known)?;
        }
        let shown = |meta: &ObjectMeta| {
            let parts = meta.location.prefix_match(path);
            parts.is_some_and(|mut parts| !parts.any(|part| hidden(part.as_ref())))
        };
        let files: Vec<ObjectMeta> = below.into_iter().filter(|m| known(m) && shown(m)).collect();
        if files.is_empty() && !self.lakes.any() {
            return Err(self.empty_directory());
        }
        Ok(files)
    }

    /// Lists files below the part of the pattern that has no wildcard, and keeps those that match.
    fn glob(&mut self, whole: &str) -> Result<Option<ExpandedSource>, SourceError> {
        let parts: Vec<&str> = whole.split('/').filter(|part| !part.is_empty()).collect();
        let fixed = parts.iter().take_while(|part| !is_pattern(part)).count();
        let slash = if self.location.is_far() { "" } else { "/" };
        let root = self
            .location
            .path(&format!("{slash}{}", parts[..fixed].join("/")));
        let Some(root) = root else { return Ok(None) };
        let mut files = Vec::new();
        let mut waiting = vec![(root.clone(), fixed)];
        while let Some((prefix, depth)) = waiting.pop() {
            let Some(pattern) = parts.get(depth) else {
                continue;
            };
            if *pattern == "**" {
                files.extend(self.at_any_depth(&prefix, &parts[depth..])?);
                continue;
            }
            let listed = self.location.level(&prefix).map_err(|e| self.failed(e))?;
            let seen = listed.objects.iter().map(|meta| &meta.location);
            seen.chain(&listed.common_prefixes)
                .for_each(|path| self.lakes.see(path));
            let matching = |path: &Path| {
                path.filename()
                    .is_some_and(|name| matches_name(pattern, name))
            };
            if depth + 1 == parts.len() {
                let objects = listed.objects.into_iter();
                files.extend(objects.filter(|meta| matching(&meta.location)));
            } else {
                let directories = listed.common_prefixes.into_iter().filter(matching);
                waiting.extend(directories.map(|path| (path, depth + 1)));
            }
        }
        Ok(Some(ExpandedSource { files, root }))
    }

    fn at_any_depth(
        &mut self,
        prefix: &Path,
        parts: &[&str],
    ) -> Result<Vec<ObjectMeta>, SourceError> {
        let below = self.location.list(prefix).map_err(|e| self.failed(e))?;
        for meta in &below {
            self.lakes.see(&meta.location);
        }
        let matching = |meta: &ObjectMeta| {
            let names: Option<Vec<String>> = meta
                .location
                .prefix_match(prefix)
                .map(|names| names.map(|name| name.as_ref().to_owned()).collect());
            names.is_some_and(|names| matches_parts(parts, &names))
        };
        Ok(below.into_iter().filter(matching).collect())
    }

    fn empty_directory(&self) -> SourceError {
        SourceError::EmptyDirectory {
            source_text: self.source.to_owned(),
        }
    }

    /// Returns the error of a missing source, with a similar existing name.
    fn missing(&self, text: &str) -> SourceError {
        let hint = self.location.path(text).and_then(|path| self.hint(&path));
        SourceError::Missing {
            source_text: self.source.to_owned(),
            hint: hint.unwrap_or_default(),
        }
    }

    /// Returns the most similar name in the deepest existing directory of the path.
    fn hint(&self, path: &Path) -> Option<String> {
        let parts: Vec<String> = path.parts().map(|part| part.as_ref().to_owned()).collect();
        for at in (0..parts.len()).rev() {
            let parent = Path::from_iter(parts[..at].iter().map(String::as_str));
            let listed = self.location.level(&parent).ok()?;
            let objects = listed.objects.iter().map(|meta| &meta.location);
            let names: Vec<&str> = objects
                .chain(&listed.common_prefixes)
                .filter_map(Path::filename)
                .collect();
            if !names.is_empty() || self.location.is_far() {
                return Some(near::hint(&parts[at], names));
            }
        }
        None
    }
}

/// Fails at the first pipe or unreadable directory below a directory, of those whose name is
/// `wanted`. A listing skips them, so their rows would be missing silently. Symbolic links to
/// directories are not followed.
#[allow(
    clippy::disallowed_methods,
    reason = "sources are the user's files, not those of a store"
)]
fn refuse_passed_over(root: PathBuf, wanted: &dyn Fn(&str) -> bool) -> Result<(), SourceError> {
    let mut waiting = vec![root];
    while let Some(dir) = waiting.pop() {
        let failed = |path: &PathBuf, error: io::Error| SourceError::Io {
            file: path.to_string_lossy().into_owned(),
            error,
        };
        for entry in fs::read_dir(&dir).map_err(|error| failed(&dir, error))? {
            let entry = entry.map_err(|error| failed(&dir, error))?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if hidden(&name) {
                continue;
            }
            let kind = entry.file_type().map_err(|error| failed(&path, error))?;
            if kind.is_dir() {
                waiting.push(path);
                continue;
            }
            if !wanted(&name) {
                continue;
            }
            match fs::metadata(&path) {
                // A broken link.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&path, error)),
                Ok(there) => {
                    if let Some(what) = special(there.file_type()) {
                        let source_text = path.to_string_lossy().into_owned();
                        return Err(SourceError::NoFile { source_text, what });
                    }
                }
            }
        }
    }
    Ok(())
}
