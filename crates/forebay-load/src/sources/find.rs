//! From paths, directories and globs to files.
//!
//! In a glob `*` and `?` match within a name, `[a-z]` one of a set, `**` any directories. A directory stands for
//! the files of known endings below it. Names that begin with `.` or `_` are taken only when written out.
//! Sources keep the order in which they were given, the files of one are sorted by name, and a file that two
//! sources name is read once.

use std::path::PathBuf;
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use super::blob::{Blob, Store};
use super::error::SourceError;
use super::format::{Format, Packing};

/// The files that sources name. With `any_ending`, directories give all their files.
pub(super) fn find(sources: &[String], any_ending: bool) -> Result<Vec<Blob>, SourceError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(SourceError::Runtime)?;
    let store = Arc::new(Store {
        objects: Arc::new(LocalFileSystem::new()),
        runtime,
    });
    let mut blobs: Vec<Blob> = Vec::new();
    for source in sources {
        let mut found =
            store
                .runtime
                .block_on(expand(store.objects.as_ref(), source, any_ending))?;
        found.sort_by(|a, b| a.location.cmp(&b.location));
        for meta in found {
            if blobs.iter().any(|blob| blob.path == meta.location) {
                continue;
            }
            let name = shown_name(source, &meta.location);
            let store = store.clone();
            blobs.push(Blob {
                store,
                path: meta.location,
                name,
                size_bytes: meta.size,
            });
        }
    }
    if blobs.is_empty() {
        Err(SourceError::NoSource)
    } else {
        Ok(blobs)
    }
}

/// The source as given when it is a file, else the file's full path.
fn shown_name(source: &str, location: &Path) -> Arc<str> {
    let file = location.filename().unwrap_or_default();
    if source.ends_with(file) && !source.contains('*') {
        return Arc::from(source);
    }
    match LocalFileSystem::new().path_to_filesystem(location) {
        Ok(path) => relative(path).into(),
        Err(_) => format!("/{location}").into(),
    }
}

/// Shortens a path below the working directory.
fn relative(path: PathBuf) -> String {
    let here = std::env::current_dir().ok();
    let short = here.and_then(|here| path.strip_prefix(here).ok().map(PathBuf::from));
    short.unwrap_or(path).to_string_lossy().into_owned()
}

async fn expand(
    objects: &dyn ObjectStore,
    source: &str,
    any_ending: bool,
) -> Result<Vec<ObjectMeta>, SourceError> {
    let text = source.strip_prefix("file://").unwrap_or(source);
    if text.contains("://") {
        return Err(SourceError::Remote {
            source_text: source.to_owned(),
        });
    }
    let missing = || SourceError::Missing {
        source_text: source.to_owned(),
    };
    if let Some(path) = absolute(text) {
        if let Ok(meta) = objects.head(&path).await {
            return Ok(vec![meta]);
        }
        let below: Vec<ObjectMeta> = list(objects, &path).await;
        if !below.is_empty() {
            return directory(source, &path, below, any_ending);
        }
        if std::path::Path::new(text).is_dir() {
            return Err(SourceError::EmptyDirectory {
                source_text: source.to_owned(),
            });
        }
    }
    if !text.contains(['*', '?', '[']) {
        return Err(missing());
    }
    let found = glob(objects, text).await.ok_or_else(missing)?;
    if found.is_empty() {
        return Err(SourceError::NoMatch {
            source_text: source.to_owned(),
        });
    }
    Ok(found)
}

fn absolute(text: &str) -> Option<Path> {
    Path::from_absolute_path(std::path::absolute(text).ok()?).ok()
}

/// All objects below a path; none when it cannot be listed.
async fn list(objects: &dyn ObjectStore, path: &Path) -> Vec<ObjectMeta> {
    objects
        .list(Some(path))
        .try_collect()
        .await
        .unwrap_or_default()
}

fn directory(
    source: &str,
    path: &Path,
    below: Vec<ObjectMeta>,
    any_ending: bool,
) -> Result<Vec<ObjectMeta>, SourceError> {
    let known = |meta: &ObjectMeta| {
        let name = meta.location.filename().unwrap_or_default();
        any_ending || Format::of_name(Packing::of_name(name).1).is_some()
    };
    let shown = |meta: &ObjectMeta| {
        let parts = meta.location.prefix_match(path);
        parts.is_some_and(|mut parts| !parts.any(|part| hidden(part.as_ref())))
    };
    let files: Vec<ObjectMeta> = below.into_iter().filter(|m| known(m) && shown(m)).collect();
    if files.is_empty() {
        return Err(SourceError::EmptyDirectory {
            source_text: source.to_owned(),
        });
    }
    Ok(files)
}

fn hidden(name: &str) -> bool {
    name.starts_with(['.', '_'])
}

/// Lists below the part of the pattern that has no wildcard, and keeps what matches.
async fn glob(objects: &dyn ObjectStore, text: &str) -> Option<Vec<ObjectMeta>> {
    let full = std::path::absolute(text).ok()?;
    let full = full.to_str()?.trim_start_matches('/').to_owned();
    let parts: Vec<&str> = full.split('/').filter(|part| !part.is_empty()).collect();
    let fixed = parts
        .iter()
        .take_while(|part| !part.contains(['*', '?', '[']))
        .count();
    let prefix = absolute(&format!("/{}", parts[..fixed].join("/")))?;
    let mut found = Vec::new();
    let mut waiting = vec![(prefix, fixed)];
    while let Some((prefix, depth)) = waiting.pop() {
        let Some(pattern) = parts.get(depth) else {
            continue;
        };
        if *pattern == "**" {
            let below = list(objects, &prefix).await;
            found.extend(below.into_iter().filter(|meta| {
                let names: Option<Vec<String>> = meta
                    .location
                    .prefix_match(&prefix)
                    .map(|names| names.map(|name| name.as_ref().to_owned()).collect());
                names.is_some_and(|names| matches_parts(&parts[depth..], &names))
            }));
            continue;
        }
        let Ok(listed) = objects.list_with_delimiter(Some(&prefix)).await else {
            continue;
        };
        let last = depth + 1 == parts.len();
        let matching = |path: &Path| {
            path.filename()
                .is_some_and(|name| matches_name(pattern, name))
        };
        if last {
            found.extend(
                listed
                    .objects
                    .into_iter()
                    .filter(|meta| matching(&meta.location)),
            );
        } else {
            let directories = listed.common_prefixes.into_iter().filter(matching);
            waiting.extend(directories.map(|path| (path, depth + 1)));
        }
    }
    Some(found)
}

/// Whether the names of a path match a pattern's parts; `**` matches any number of directories.
fn matches_parts(parts: &[&str], names: &[String]) -> bool {
    match (parts.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((&"**", rest)), _) => {
            if matches_parts(rest, names) {
                return true;
            }
            names.split_first().is_some_and(|(name, below)| {
                !hidden(name)
                    && (matches_parts(parts, below) || (rest.is_empty() && below.is_empty()))
            })
        }
        (Some((part, rest)), Some((name, below))) => {
            matches_name(part, name) && matches_parts(rest, below)
        }
        _ => false,
    }
}

/// Whether a name matches a pattern of `*`, `?` and `[...]`.
pub(super) fn matches_name(pattern: &str, name: &str) -> bool {
    if hidden(name) && pattern.starts_with(['*', '?', '[']) {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    // The position after the last star, and how far the name was when it was met.
    let mut retry: Option<(usize, usize)> = None;
    let (mut p, mut n) = (0, 0);
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            p += 1;
            retry = Some((p, n));
        } else if let Some(next) = match_one(&pattern, p, name[n]) {
            p = next;
            n += 1;
        } else if let Some((after_star, seen)) = retry {
            retry = Some((after_star, seen + 1));
            (p, n) = (after_star, seen + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|rest| *rest == '*')
}

/// Matches one character; gives the pattern's position after it.
fn match_one(pattern: &[char], at: usize, character: char) -> Option<usize> {
    match pattern.get(at)? {
        '?' => Some(at + 1),
        '[' => match_set(pattern, at, character),
        plain => (*plain == character).then_some(at + 1),
    }
}

fn match_set(pattern: &[char], at: usize, character: char) -> Option<usize> {
    let close = at + 2 + pattern.get(at + 2..)?.iter().position(|c| *c == ']')?;
    let set = &pattern[at + 1..close];
    let (negated, set) = match set.split_first() {
        Some(('!' | '^', rest)) if !rest.is_empty() => (true, rest),
        _ => (false, set),
    };
    let mut inside = false;
    let mut index = 0;
    while index < set.len() {
        if index + 2 < set.len() && set[index + 1] == '-' {
            inside |= (set[index]..=set[index + 2]).contains(&character);
            index += 3;
        } else {
            inside |= set[index] == character;
            index += 1;
        }
    }
    (inside != negated).then_some(close + 1)
}
