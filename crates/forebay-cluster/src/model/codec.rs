//! Encodes models as documents, and decodes them.
//!
//! Each document states its format, which is the catalog's format at the time of the write.

use std::collections::BTreeMap;

use forebay_engine::{DocumentError, TableName, seal_text, unseal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Model;
use super::doc::{Doc, DocRef};
use super::groups::{GroupsRoot, TableGroups};
use super::head::{FORMATS, Head, NEWEST_FORMAT};
use super::layout::{Layout, LayoutName, LayoutRoot};

const FORMAT_FIELD: &str = "forebay_document";

/// The content of a document's file.
#[derive(Serialize, Deserialize)]
struct WrittenDocument<T> {
    forebay_document: u64,
    /// The version of the program that wrote the document. Older versions may be unable to read it.
    #[serde(default)]
    program: String,
    content: T,
}

/// The part of a document that is the same in all formats.
#[derive(Deserialize)]
struct FormatStamp {
    #[serde(default)]
    program: String,
}

/// The version of this program.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// The documents that were read, by name.
pub type Documents = BTreeMap<DocRef, Vec<u8>>;

/// The reason why documents do not give a model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// These documents must be read first.
    #[error("{} documents of the catalog are not here yet", .0.len())]
    Lacks(Vec<DocRef>),
    #[error("document {name} of the catalog cannot be read: {problem}")]
    Damaged { name: String, problem: String },
    #[error(
        "the cluster's catalog is of format {found}, and this program, forebay {PROGRAM}, reads {} to {}: use \
         forebay {program} or a newer one; nothing was changed", FORMATS[0], FORMATS[1]
    )]
    Newer {
        found: u64,
        /// The version of the program that wrote the document.
        program: String,
    },
}

/// Returns the bytes of a document's file, in a catalog of this format.
pub fn written<T: Serialize>(format: u64, content: T) -> Result<Vec<u8>, ModelError> {
    let written = WrittenDocument {
        forebay_document: format,
        program: PROGRAM.to_owned(),
        content,
    };
    let text = serde_json::to_vec(&written).map_err(|error| ModelError::Damaged {
        name: "to be written".to_owned(),
        problem: error.to_string(),
    })?;
    Ok(seal_text(text))
}

/// Returns the content of a document's file.
pub fn parsed<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, ModelError> {
    Ok(parsed_as(name, bytes)?.1)
}

/// Returns the content of a document's file, and the document's format.
pub fn parsed_as<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<(u64, T), ModelError> {
    let read = |format| unseal::<WrittenDocument<T>>(bytes, FORMAT_FIELD, format);
    let read = match read(NEWEST_FORMAT) {
        Err(DocumentError::Format { found, .. }) if found > NEWEST_FORMAT => {
            return Err(newer(bytes, found));
        }
        Err(DocumentError::Format { found, .. }) if found >= FORMATS[0] => read(found),
        read => read,
    };
    let (written, _) = read.map_err(|problem| ModelError::Damaged {
        name: name.to_owned(),
        problem: problem.to_string(),
    })?;
    Ok((written.forebay_document, written.content))
}

fn newer(bytes: &[u8], found: u64) -> ModelError {
    let by = unseal::<FormatStamp>(bytes, FORMAT_FIELD, found);
    let program = by.map(|(by, _)| by.program).unwrap_or_default();
    let program = match program.is_empty() {
        true => "as the cluster's nodes run".to_owned(),
        false => program,
    };
    ModelError::Newer { found, program }
}

impl Model {
    /// Gives a name to every document that has none. Returns these documents with their bytes, and
    /// the roots for the head.
    pub fn write(
        &mut self,
        format: u64,
        mut next_name: impl FnMut() -> DocRef,
    ) -> Result<(Documents, BTreeMap<String, DocRef>), ModelError> {
        let mut documents = Documents::new();
        let mut roots = BTreeMap::new();
        for (page, doc) in &mut self.nodes {
            let reference = write(format, doc, &mut documents, &mut next_name)?;
            roots.insert(format!("nodes/{page}"), reference);
        }
        for (page, doc) in &mut self.tables {
            let reference = write(format, doc, &mut documents, &mut next_name)?;
            roots.insert(format!("tables/{page}"), reference);
        }
        for (name, layout) in &mut self.layouts {
            let reference = layout.write(format, &mut documents, &mut next_name)?;
            roots.insert(format!("layout/{name}"), reference);
        }
        for (table, groups) in &mut self.groups {
            let reference = groups.write(format, &mut documents, &mut next_name)?;
            roots.insert(format!("groups/{table}"), reference);
        }
        if let Some(plan) = &mut self.plan {
            let reference = write(format, plan, &mut documents, &mut next_name)?;
            roots.insert("plan".to_owned(), reference);
        }
        let reference = write(format, &mut self.work, &mut documents, &mut next_name)?;
        roots.insert("work".to_owned(), reference);
        Ok((documents, roots))
    }

    /// Returns whether any document has not been written.
    pub fn is_changed(&self, head: &Head) -> bool {
        let is_written = |reference: Option<&DocRef>, root: &str| {
            reference.is_some() && head.roots.get(root) == reference
        };
        let nodes = self.nodes.iter();
        let tables = self.tables.iter();
        let layouts = self.layouts.iter();
        let groups = self.groups.iter();
        let plans = usize::from(self.plan.is_some());
        let pages = self.nodes.len() + self.tables.len();
        let roots = 1 + plans + pages + self.layouts.len() + self.groups.len();
        let all = roots == head.roots.len()
            && is_written(self.work.reference(), "work")
            && self
                .plan
                .iter()
                .all(|plan| is_written(plan.reference(), "plan"))
            && nodes
                .map(|(page, doc)| is_written(doc.reference(), &format!("nodes/{page}")))
                .chain(
                    tables
                        .map(|(page, doc)| is_written(doc.reference(), &format!("tables/{page}"))),
                )
                .chain(
                    layouts
                        .map(|(name, layout)| is_written(layout.root(), &format!("layout/{name}"))),
                )
                .chain(
                    groups.map(|(table, groups)| {
                        is_written(groups.root(), &format!("groups/{table}"))
                    }),
                )
                .all(|written| written);
        !all
    }

    /// Returns the names of all documents that the model was read from.
    pub fn references(&self) -> Vec<DocRef> {
        let nodes = self.nodes.values().map(Doc::reference);
        let tables = self.tables.values().map(Doc::reference);
        let layouts = self.layouts.values();
        let layouts = layouts.flat_map(|layout| {
            let chunks = layout.chunks().iter().map(Doc::reference);
            chunks.chain([layout.root()])
        });
        let groups = self.groups.values().flat_map(|groups| {
            let pages = groups.pages().iter().map(Doc::reference);
            pages.chain([groups.root()])
        });
        let plan = self.plan.iter().map(Doc::reference);
        let all = nodes.chain(tables).chain(layouts).chain(groups).chain(plan);
        all.chain([self.work.reference()])
            .flatten()
            .cloned()
            .collect()
    }

    /// Builds the model that a head names, from the documents that were read and from an earlier
    /// model, `known`.
    pub fn read(head: &Head, documents: &Documents, known: &Model) -> Result<Self, ModelError> {
        let mut reader = Reader {
            documents,
            lacks: Vec::new(),
        };
        let mut model = Model::default();
        for (root, reference) in &head.roots {
            let damaged = || ModelError::Damaged {
                name: "head".to_owned(),
                problem: format!("it names a document of an unknown kind: {root}"),
            };
            match root.split_once('/') {
                Some(("nodes", page)) => {
                    let page = page.parse().map_err(|_| damaged())?;
                    let doc = reader.doc(reference, known.nodes.get(&page))?;
                    model.nodes.extend(doc.map(|doc| (page, doc)));
                }
                Some(("tables", page)) => {
                    let page = page.parse().map_err(|_| damaged())?;
                    let doc = reader.doc(reference, known.tables.get(&page))?;
                    model.tables.extend(doc.map(|doc| (page, doc)));
                }
                Some(("layout", name)) => {
                    let name = LayoutName::parse(name).ok_or_else(damaged)?;
                    let layout = reader.layout(reference, known.layouts.get(&name))?;
                    model.layouts.extend(layout.map(|layout| (name, layout)));
                }
                Some(("groups", table)) => {
                    let table = TableName::new(table).map_err(|_| damaged())?;
                    let groups = reader.groups(reference, known.groups.get(&table))?;
                    model.groups.extend(groups.map(|groups| (table, groups)));
                }
                None if root == "plan" => {
                    model.plan = reader.doc(reference, known.plan.as_ref())?
                }
                None if root == "work" => {
                    let doc = reader.doc(reference, Some(&known.work))?;
                    model.work = doc.unwrap_or_default();
                }
                _ => return Err(damaged()),
            }
        }
        match reader.lacks.is_empty() {
            true => Ok(model),
            false => Err(ModelError::Lacks(reader.lacks)),
        }
    }
}

impl Layout {
    fn write(
        &mut self,
        format: u64,
        documents: &mut Documents,
        next_name: &mut impl FnMut() -> DocRef,
    ) -> Result<DocRef, ModelError> {
        debug_assert!(
            self.root().is_none()
                || self
                    .chunks()
                    .iter()
                    .all(|chunk| chunk.reference().is_some()),
            "ranges changed, and the layout's root would not say so"
        );
        let mut chunks = Vec::with_capacity(self.chunks().len());
        for chunk in self.chunks_mut() {
            chunks.push(write(format, chunk, documents, next_name)?);
        }
        if let Some(root) = self.root() {
            return Ok(root.clone());
        }
        let reference = next_name();
        let root = LayoutRoot {
            order: self.order,
            chunks,
        };
        documents.insert(reference.clone(), written(format, &root)?);
        self.root_written(reference.clone());
        Ok(reference)
    }
}

impl TableGroups {
    fn write(
        &mut self,
        format: u64,
        documents: &mut Documents,
        next_name: &mut impl FnMut() -> DocRef,
    ) -> Result<DocRef, ModelError> {
        debug_assert!(
            self.root().is_none() || self.pages().iter().all(|page| page.reference().is_some()),
            "groups changed, and their table's root would not say so"
        );
        let mut pages = Vec::with_capacity(self.pages().len());
        for page in self.pages_mut() {
            pages.push(write(format, page, documents, next_name)?);
        }
        if let Some(root) = self.root() {
            return Ok(root.clone());
        }
        let reference = next_name();
        documents.insert(reference.clone(), written(format, GroupsRoot { pages })?);
        self.root_written(reference.clone());
        Ok(reference)
    }
}

fn write<T: Serialize>(
    format: u64,
    doc: &mut Doc<T>,
    documents: &mut Documents,
    next_name: &mut impl FnMut() -> DocRef,
) -> Result<DocRef, ModelError> {
    if let Some(reference) = doc.reference() {
        return Ok(reference.clone());
    }
    let reference = next_name();
    documents.insert(reference.clone(), written(format, &**doc)?);
    doc.written(reference.clone());
    Ok(reference)
}

struct Reader<'a> {
    documents: &'a Documents,
    lacks: Vec<DocRef>,
}

impl Reader<'_> {
    /// Returns a document. If it is lacking, records its name and returns `None`.
    fn doc<T: Clone + DeserializeOwned>(
        &mut self,
        reference: &DocRef,
        known: Option<&Doc<T>>,
    ) -> Result<Option<Doc<T>>, ModelError> {
        if let Some(known) = known.filter(|known| known.reference() == Some(reference)) {
            return Ok(Some(known.clone()));
        }
        let Some(bytes) = self.documents.get(reference) else {
            self.lacks.push(reference.clone());
            return Ok(None);
        };
        let content = parsed(reference.as_str(), bytes)?;
        Ok(Some(Doc::read(reference.clone(), content)))
    }

    /// Returns the documents that another one names, without those that are lacking.
    fn docs<'k, T: Clone + DeserializeOwned + 'k>(
        &mut self,
        references: &[DocRef],
        known: impl Iterator<Item = &'k Doc<T>>,
    ) -> Result<Vec<Doc<T>>, ModelError> {
        let known = known.filter_map(|doc| Some((doc.reference()?, doc)));
        let known: BTreeMap<&DocRef, &Doc<T>> = known.collect();
        let mut docs = Vec::with_capacity(references.len());
        for reference in references {
            docs.extend(self.doc(reference, known.get(reference).copied())?);
        }
        Ok(docs)
    }

    fn layout(
        &mut self,
        reference: &DocRef,
        known: Option<&Layout>,
    ) -> Result<Option<Layout>, ModelError> {
        if let Some(known) = known.filter(|known| known.root() == Some(reference)) {
            return Ok(Some(known.clone()));
        }
        let Some(root) = self.doc::<LayoutRoot>(reference, None)? else {
            return Ok(None);
        };
        let known = known.into_iter().flat_map(|known| known.chunks());
        let chunks = self.docs(&root.chunks, known)?;
        Ok(Some(Layout::read(reference.clone(), root.order, chunks)))
    }

    fn groups(
        &mut self,
        reference: &DocRef,
        known: Option<&TableGroups>,
    ) -> Result<Option<TableGroups>, ModelError> {
        if let Some(known) = known.filter(|known| known.root() == Some(reference)) {
            return Ok(Some(known.clone()));
        }
        let Some(root) = self.doc::<GroupsRoot>(reference, None)? else {
            return Ok(None);
        };
        let known = known.into_iter().flat_map(|known| known.pages());
        let pages = self.docs(&root.pages, known)?;
        Ok(Some(TableGroups::read(reference.clone(), pages)))
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
