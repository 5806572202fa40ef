//! Sources: files of several formats as one stream of rows with one schema.
//!
//! [`SourceSet::open`] finds the files, reads footers, headers and samples, unites the schemas and cuts the
//! whole into units (row groups, ranges of lines, record batches) that threads read side by side. Every row
//! has a position, its unit's index and its number within the unit, in the order of the sources given:
//! so "the first" and "the last" of two rows with one key mean the same on every run.

mod blob;
mod columns;
mod csv;
mod error;
mod find;
mod format;
mod infer_csv;
mod infer_json;
mod ipc;
mod jsonl;
mod origin;
mod parquet;
mod records;
mod split;
mod text;
mod union;
mod unit;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow_schema::{DataType, Fields, Schema, SchemaRef};

use crate::encode::plain_schema;
use blob::Blob;
pub use columns::{parse_column, parse_schema};
pub use error::SourceError;
pub use format::Format;
use format::Packing;
use ipc::IpcFile;
pub use origin::{Origin, Place, Reject};
use parquet::ParquetFile;
use text::{TextFile, TextFormat};
use union::{FileColumns, unite};
pub use unit::Unit;

/// Rows of a batch, at most, where the source does not say.
pub(crate) const BATCH_ROWS: usize = 8192;

/// How CSV files are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvOptions {
    pub delimiter: u8,
    /// The first record has the columns' names; else they are `column_1` and so on.
    pub header: bool,
    /// A text that stands for null, besides the empty one.
    pub null: Option<String>,
}

impl Default for CsvOptions {
    fn default() -> CsvOptions {
        CsvOptions {
            delimiter: b',',
            header: true,
            null: None,
        }
    }
}

impl CsvOptions {
    fn is_null(&self, field: &[u8]) -> bool {
        field.is_empty()
            || self
                .null
                .as_ref()
                .is_some_and(|null| null.as_bytes() == field)
    }
}

/// How sources are read.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// The format of all files; else each one's ending tells.
    pub format: Option<Format>,
    pub csv: CsvOptions,
    /// The delimiter was given, so that `.tsv` does not mean tabs.
    pub delimiter_given: bool,
    /// Types of columns, in place of guessed or widened ones.
    pub columns: Vec<(String, DataType)>,
    /// Records of a text file from which types are guessed.
    pub sample_rows: usize,
}

impl Default for SourceOptions {
    fn default() -> SourceOptions {
        SourceOptions {
            format: None,
            csv: CsvOptions::default(),
            delimiter_given: false,
            columns: Vec::new(),
            sample_rows: 10_000,
        }
    }
}

/// A file and what it was found to be.
#[derive(Debug)]
struct File {
    blob: Blob,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Parquet(ParquetFile),
    Text(TextFile),
    Ipc(IpcFile),
}

impl File {
    fn describe(blob: Blob, options: &SourceOptions) -> Result<File, SourceError> {
        let name = blob.name.to_string();
        let (packing, bare) = Packing::of_name(&name);
        let format = options
            .format
            .or_else(|| Format::of_name(bare))
            .ok_or_else(|| SourceError::UnknownFormat { file: name.clone() })?;
        let text = |format| TextFile::describe(&blob, format, packing, options).map(Content::Text);
        let content = match format {
            Format::Parquet | Format::Arrow if packing != Packing::Plain => {
                return Err(SourceError::Compressed { file: name });
            }
            Format::Parquet => Content::Parquet(ParquetFile::describe(&blob)?),
            Format::Arrow => Content::Ipc(IpcFile::describe(&blob)?),
            Format::JsonLines => text(TextFormat::JsonLines)?,
            Format::Csv => {
                let mut csv = options.csv.clone();
                if !options.delimiter_given && bare.to_ascii_lowercase().ends_with(".tsv") {
                    csv.delimiter = b'\t';
                }
                text(TextFormat::Csv(csv))?
            }
        };
        Ok(File { blob, content })
    }

    fn fields(&self) -> &Fields {
        match &self.content {
            Content::Parquet(file) => file.schema().fields(),
            Content::Text(file) => &file.fields,
            Content::Ipc(file) => file.schema.fields(),
        }
    }
}

/// Files opened as one source.
#[derive(Debug)]
pub struct SourceSet {
    /// The columns of all files; dictionaries and run ends are unwrapped.
    pub schema: SchemaRef,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Rows of all files, where the formats tell.
    pub total_rows: Option<u64>,
    /// What threads read side by side, in the order of the rows.
    pub units: Vec<Unit>,
    /// The names of the files, in order.
    pub files: Vec<Arc<str>>,
}

impl SourceSet {
    /// Opens paths, directories and globs.
    pub fn open(sources: &[String], options: &SourceOptions) -> Result<SourceSet, SourceError> {
        let blobs = find::find(sources, options.format.is_some())?;
        let mut files = Vec::with_capacity(blobs.len());
        for blob in blobs {
            files.push(Arc::new(File::describe(blob, options)?));
        }
        let columns: Vec<FileColumns> = (files.iter())
            .map(|file| FileColumns {
                file: file.blob.name.clone(),
                fields: file.fields().clone(),
                guessed: matches!(file.content, Content::Text(_)),
            })
            .collect();
        let schema = plain_schema(&unite(&columns, &options.columns)?);
        let mut units = Vec::new();
        for file in &files {
            unit::cut(file, &schema, &mut units)?;
        }
        let rows: Option<Vec<u64>> = units.iter().map(Unit::rows).collect();
        Ok(SourceSet {
            schema,
            total_bytes: files.iter().map(|file| file.blob.size_bytes).sum(),
            total_rows: rows.map(|rows| rows.iter().sum()),
            units,
            files: files.iter().map(|file| file.blob.name.clone()).collect(),
        })
    }

    /// Gives batches of these columns, in this order, cast where the sources' types differ. A column that no
    /// source has is null.
    pub fn arrange(&mut self, schema: SchemaRef) {
        self.schema = schema;
        for unit in &mut self.units {
            unit.keep(&self.schema);
        }
    }

    /// Leaves out all columns but those named, which then need not be read. Names that no column has are passed
    /// over: check them first against the whole schema.
    pub fn keep_columns(&mut self, names: &[&str]) {
        let fields = self.schema.fields().iter();
        let kept: Fields = fields
            .filter(|field| names.contains(&field.name().as_str()))
            .cloned()
            .collect();
        self.arrange(Arc::new(Schema::new(kept)));
    }
}
