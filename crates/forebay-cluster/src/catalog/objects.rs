//! A catalog in object storage, which uses the store's own conditional writes.

use std::io;

use bytes::Bytes;
use forebay_objects::{News, Objects, PutOutcome, UpdateVersion};

use super::{Catalog, SeenTag, WriteOutcome};

/// Separates the two tags that a store gives to one content.
const SEPARATOR: char = '\n';

#[derive(Debug)]
pub struct ObjectCatalog {
    objects: Objects,
}

impl ObjectCatalog {
    /// Creates a catalog in the store's `objects`.
    pub fn new(objects: Objects) -> Self {
        Self { objects }
    }
}

impl Catalog for ObjectCatalog {
    fn get(&self, name: &str) -> io::Result<Option<(Bytes, SeenTag)>> {
        match self.objects.news(&path(name), None)? {
            News::Content(bytes, seen) => Ok(Some((bytes, tag(&seen)))),
            News::Same | News::Absent => Ok(None),
        }
    }

    fn put_if(
        &self,
        name: &str,
        content: Bytes,
        seen: Option<&SeenTag>,
    ) -> io::Result<WriteOutcome> {
        let put = self
            .objects
            .put_if(&path(name), content, &seen.map(untag))?;
        Ok(match put {
            PutOutcome::Done(Some(seen)) => WriteOutcome::Done(tag(&seen)),
            PutOutcome::Done(None) | PutOutcome::Changed => WriteOutcome::Changed,
        })
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.objects.list(&path(dir))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.objects.delete(&path(name))
    }
}

fn path(name: &str) -> String {
    format!("cluster/{name}")
}

fn tag(seen: &UpdateVersion) -> SeenTag {
    let of = |part: &Option<String>| part.clone().unwrap_or_default();
    SeenTag(format!(
        "{}{SEPARATOR}{}",
        of(&seen.e_tag),
        of(&seen.version)
    ))
}

fn untag(tag: &SeenTag) -> UpdateVersion {
    let (e_tag, version) = tag.0.split_once(SEPARATOR).unwrap_or((&tag.0, ""));
    let some = |part: &str| (!part.is_empty()).then(|| part.to_owned());
    UpdateVersion {
        e_tag: some(e_tag),
        version: some(version),
    }
}
