//! Reads files of several formats, or record batches, as one stream of rows with one schema.
//!
//! [`SourceSet::open`] finds the files, reads footers, headers and samples, and unites the schemas.
//! It splits the whole into units (row groups, ranges of lines, record batches) that threads read
//! in parallel. Every row has a position: its unit's index and its number within the unit, in the
//! order of the given sources. "The first" and "the last" of two rows with one key are therefore
//! the same in every run.
//!
//! Types of text files are inferred from samples. If a record contradicts an inferred type, reading
//! ends with [`SourceError::GuessFailed`]. [`SourceSet::look_at_all`] then finds the types of all
//! rows, and the caller opens the sources again with them.

mod batch_bytes;
mod batches;
mod blob;
mod capture;
mod columns;
mod content;
mod describe;
mod error;
mod find;
mod format;
mod hive;
mod ipc;
mod origin;
mod pandas;
mod parquet;
mod parquet_types;
mod spool;
mod store;
mod text_files;
mod union;
mod unit;
mod wide_integers;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arrow_schema::{DataType, Fields, Schema, SchemaRef};
use forebay_run::error::named_column;

use crate::convert::{GivenType, Loss, Lossy, Rules};
use crate::progress;
use crate::types::plain_schema;
pub use batches::Batches;
use blob::Blob;
use capture::CaptureFile;
pub use columns::{parse_column, parse_schema};
pub use error::SourceError;
pub use format::Format;
use format::Packing;
use hive::Constants;
use ipc::IpcFile;
pub(crate) use origin::row_as_json;
pub use origin::{Origin, Place, Reject};
use parquet::ParquetFile;
pub use spool::Spool;
use text_files::TextFormat;
pub use text_files::guesses::Guesses;
use text_files::text::TextFile;
use union::{FileColumns, unite};
pub use unit::SourceUnit;

/// The most rows of a batch, unless the source has its own batches.
pub(crate) const BATCH_ROWS: usize = 8192;

/// The format of CSV files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvOptions {
    pub delimiter: u8,
    /// The quote around fields that contain a delimiter or a line end. Within a field it is
    /// doubled.
    pub quote: u8,
    /// The first record has the columns' names; otherwise they are `column_1` and so on.
    pub header: bool,
    /// Texts that mean null, in addition to the empty one.
    pub null: Vec<String>,
}

impl Default for CsvOptions {
    fn default() -> CsvOptions {
        CsvOptions {
            delimiter: b',',
            quote: b'"',
            header: true,
            null: Vec::new(),
        }
    }
}

impl CsvOptions {
    fn is_null(&self, field: &[u8]) -> bool {
        field.is_empty() || self.null.iter().any(|null| null.as_bytes() == field)
    }
}

/// The options for reading sources.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// The format of all files; by default each file's ending decides.
    pub format: Option<Format>,
    pub csv: CsvOptions,
    /// The delimiter was given, so `.tsv` does not imply tabs.
    pub delimiter_given: bool,
    /// Types of columns, which replace inferred or widened ones, and the losses allowed in them.
    pub columns: Vec<GivenType>,
    /// Types of columns that an existing table requires.
    pub table: Vec<(String, DataType)>,
    /// The number of records of a text file from which types are inferred.
    pub sample_rows: usize,
    /// The result of [`SourceSet::look_at_all`], which replaces samples.
    pub guesses: Option<Arc<Guesses>>,
    /// Whether the bytes of packets are also a column.
    pub packet_data: bool,
    /// The place for sources that can be read only once.
    pub spool: Spool,
}

impl SourceOptions {
    /// Returns options for sources whose columns must have the types of `schema`, with the losses
    /// allowed in places of them.
    pub(crate) fn for_table(schema: &Schema, losses: &[(String, Loss)]) -> SourceOptions {
        let fields = schema.fields().iter();
        let table = fields.map(|field| (field.name().clone(), field.data_type().clone()));
        let table: Vec<(String, DataType)> = table.collect();
        SourceOptions {
            columns: columns::given_within(&table, losses),
            table,
            ..SourceOptions::default()
        }
    }
}

impl Default for SourceOptions {
    fn default() -> SourceOptions {
        SourceOptions {
            format: None,
            csv: CsvOptions::default(),
            delimiter_given: false,
            columns: Vec::new(),
            table: Vec::new(),
            sample_rows: 10_000,
            guesses: None,
            packet_data: false,
            spool: Spool::default(),
        }
    }
}

/// The origin of rows.
#[derive(Debug, Clone)]
pub enum Input {
    /// Paths, directories, globs.
    Files(Vec<String>),
    Batches(Batches),
}

impl Input {
    /// Fails if a source is a path that names nothing. Other sources are checked when they are
    /// read.
    pub fn check_paths(&self, options: &SourceOptions) -> Result<(), SourceError> {
        let Input::Files(sources) = self else {
            return Ok(());
        };
        let is_path = |source: &&String| *source != "-" && !source.contains("://");
        let paths: Vec<String> = sources.iter().filter(is_path).cloned().collect();
        match paths.is_empty() {
            true => Ok(()),
            false => find::find(&paths, options).map(drop),
        }
    }
}

impl From<Vec<String>> for Input {
    fn from(sources: Vec<String>) -> Input {
        Input::Files(sources)
    }
}

/// Formats the input in the form that a manifest records.
impl fmt::Display for Input {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Files(sources) => {
                let shown: Vec<&str> = sources.iter().map(|source| find::shown(source)).collect();
                formatter.write_str(&shown.join(" "))
            }
            Input::Batches(batches) => formatter.write_str(&batches.name),
        }
    }
}

/// The description of a file, or of batches in its place.
#[derive(Debug)]
struct File {
    /// The name in messages.
    name: Arc<str>,
    size_bytes: u64,
    content: Content,
    /// The columns that its directories give.
    constants: Constants,
}

#[derive(Debug)]
enum Content {
    Parquet(Blob, ParquetFile),
    Text(Blob, TextFile),
    Ipc(Blob, IpcFile),
    Capture(Blob, CaptureFile),
    Batches(SchemaRef),
}

impl File {
    fn describe(blob: Blob, options: &SourceOptions) -> Result<File, SourceError> {
        let (format, packing) = content::settle(&blob, options.format)?;
        let bare = Packing::of_name(&blob.name).1;
        let size_bytes = blob.size_bytes;
        let text = |format| {
            let file = TextFile::describe(&blob, format, packing, options)?;
            Ok(Content::Text(blob.clone(), file))
        };
        let content = match format {
            Format::Parquet => {
                let file = ParquetFile::describe(&blob)?;
                Content::Parquet(blob.clone(), file)
            }
            Format::Arrow => {
                let file = IpcFile::describe(&blob)?;
                Content::Ipc(blob.clone(), file)
            }
            Format::Capture => {
                let file = CaptureFile::describe(&blob, options.packet_data)?;
                Content::Capture(blob.clone(), file)
            }
            Format::JsonLines => text(TextFormat::Json)?,
            Format::Csv => {
                let mut csv = options.csv.clone();
                if !options.delimiter_given && bare.to_ascii_lowercase().ends_with(".tsv") {
                    csv.delimiter = b'\t';
                }
                if csv.quote == csv.delimiter {
                    return Err(SourceError::Header {
                        file: blob.name.to_string(),
                        reason: "a tab stands between the fields of a .tsv file: give another --csv-quote, or \
                                 say by --csv-delimiter what does"
                            .to_owned(),
                    });
                }
                text(TextFormat::Csv(csv))?
            }
        };
        Ok(File {
            name: blob.name.clone(),
            size_bytes,
            content,
            constants: Constants::default(),
        })
    }

    /// Returns the columns of its rows: its own, followed by those of its directories.
    fn columns(&self) -> Fields {
        let own = self.fields().iter().cloned();
        let added = self.constants.fields().cloned().map(Arc::new);
        own.chain(added).collect()
    }

    /// Returns the names of pandas indexes that are not stored as a column.
    fn range_indexes(&self) -> Vec<String> {
        let names = match &self.content {
            Content::Parquet(_, file) => pandas::range_indexes(file.metadata()),
            Content::Ipc(_, file) => pandas::range_indexes(file.schema.metadata()),
            Content::Batches(schema) => pandas::range_indexes(schema.metadata()),
            Content::Text(..) | Content::Capture(..) => Vec::new(),
        };
        let columns = self.columns();
        let is_column = |name: &String| columns.iter().any(|field| field.name() == name);
        names.into_iter().filter(|name| !is_column(name)).collect()
    }

    /// Returns its own columns.
    fn fields(&self) -> &Fields {
        match &self.content {
            Content::Parquet(_, file) => file.schema().fields(),
            Content::Text(_, file) => &file.fields,
            Content::Ipc(_, file) => file.schema.fields(),
            Content::Capture(_, file) => file.schema.fields(),
            Content::Batches(schema) => schema.fields(),
        }
    }
}

/// Files, or batches, opened as one source.
#[derive(Debug)]
pub struct SourceSet {
    /// The columns of all files; dictionaries and run ends are unwrapped.
    pub schema: SchemaRef,
    /// The bytes of all files.
    pub total_bytes: u64,
    /// The rows of all files, if the formats record them.
    pub total_rows: Option<u64>,
    /// The units that threads read in parallel, in the order of the rows. Sources of batches have
    /// only those that [`SourceSet::feed`] gives.
    pub units: Vec<SourceUnit>,
    /// The names of the files, in order.
    pub files: Vec<Arc<str>>,
    /// The batches, and a template for the unit of each of their slices.
    batches: Option<(Batches, SourceUnit)>,
    rules: Arc<Rules>,
    opened: Vec<Arc<File>>,
}

/// A dispenser of the units of a set to threads.
#[derive(Debug)]
pub struct Feed<'a> {
    set: &'a SourceSet,
    next: AtomicUsize,
}

impl Feed<'_> {
    /// Returns the next unit in the order of the rows, and its number. For batches, this waits
    /// until their reader has produced one.
    pub fn next(&self) -> Result<Option<(u32, SourceUnit)>, SourceError> {
        match &self.set.batches {
            Some((batches, like)) => Ok(batches.next()?.map(|slice| like.of_slice(slice))),
            None => {
                let number = self.next.fetch_add(1, Relaxed);
                let unit = self.set.units.get(number);
                Ok(unit.map(|unit| (number as u32, unit.clone())))
            }
        }
    }
}

impl SourceSet {
    pub fn open(input: &Input, options: &SourceOptions) -> Result<SourceSet, SourceError> {
        let files = match input {
            Input::Batches(batches) => vec![Arc::new(File {
                name: batches.name.clone(),
                size_bytes: 0,
                content: Content::Batches(batches.schema().clone()),
                constants: Constants::default(),
            })],
            Input::Files(sources) => describe::all(find::find(sources, options)?, options)?,
        };
        let columns: Vec<FileColumns> = (files.iter())
            .map(|file| FileColumns {
                file: file.name.clone(),
                fields: file.columns(),
                guessed: matches!(file.content, Content::Text(..)),
                open: matches!(&file.content, Content::Text(_, text) if text.is_json()),
            })
            .collect();
        let is_column = |name: &str| {
            let mut fields = columns.iter().flat_map(|file| &file.fields);
            fields.any(|field| field.name() == name)
        };
        let (given, rules) = columns::settle(&options.columns, &options.table, is_column)?;
        let united = unite(&columns, &given).map_err(|error| explained(error, &files))?;
        let schema = plain_schema(&united);
        if let (Some(file), true) = (files.first(), schema.fields().is_empty()) {
            let mut twice = files.iter().filter_map(name_twice);
            if let Some(error) = twice.next() {
                return Err(error);
            }
            let file = file.name.to_string();
            let is_empty =
                |file: &Arc<File>| matches!(&file.content, Content::Text(_, text) if text.empty);
            let what = match files.iter().all(is_empty) {
                true => "it has no records",
                false => "none of its records has a field that can be read",
            };
            return Err(SourceError::NoColumns { file, what });
        }
        let rules = Arc::new(rules);
        let mut units = Vec::new();
        for file in &files {
            unit::cut(file, &schema, &rules, &mut units)?;
        }
        let rows: Option<Vec<u64>> = units.iter().map(SourceUnit::rows).collect();
        let (total_rows, batches) = match input {
            Input::Files(_) => (rows.map(|rows| rows.iter().sum()), None),
            Input::Batches(batches) => {
                let like = SourceUnit::of_batches(&files[0], &schema, &rules)?;
                (batches.rows, Some((batches.clone(), like)))
            }
        };
        Ok(SourceSet {
            schema,
            total_bytes: files.iter().map(|file| file.size_bytes).sum(),
            total_rows,
            units,
            files: files.iter().map(|file| file.name.clone()).collect(),
            batches,
            rules,
            opened: files,
        })
    }

    /// Returns whether a file has the column. JSON columns may first occur in any row; for JSON,
    /// this says whether an inspected row has it.
    pub fn shows(&self, column: &str) -> bool {
        self.opened.iter().any(|file| {
            let of_directories = || file.constants.fields().any(|field| field.name() == column);
            match &file.content {
                Content::Text(_, text) if text.empty => true,
                Content::Text(_, text) if text.is_unmet(column) => of_directories(),
                _ => file.columns().iter().any(|field| field.name() == column),
            }
        })
    }

    /// Returns a message for each notable condition that is not an error.
    pub(crate) fn notes(&self) -> Vec<String> {
        range_notes(&self.opened).map(|(_, note)| note).collect()
    }

    /// Returns the reason for which no file has a column of this name, if known: the end of a
    /// message.
    pub(crate) fn why_lacking(&self, column: &str) -> String {
        why_lacking(&self.opened, column)
    }

    /// Returns whether all files are text, whose types were inferred if not given.
    pub fn is_text(&self) -> bool {
        let mut files = self.opened.iter();
        files.all(|file| matches!(file.content, Content::Text(..)))
    }

    /// Returns the total to read, for progress: rows, or else bytes.
    pub fn extent(&self) -> (Option<u64>, progress::Unit) {
        match (self.total_rows, &self.batches) {
            (None, None) => (Some(self.total_bytes), progress::Unit::Bytes),
            (rows, _) => (rows, progress::Unit::Rows),
        }
    }

    /// Begins to hand out the units.
    pub fn feed(&self) -> Feed<'_> {
        Feed {
            set: self,
            next: AtomicUsize::new(0),
        }
    }

    /// Fails if a file changed since it was opened: the rows read from it may be from different
    /// moments.
    pub fn confirm(&self) -> Result<(), SourceError> {
        for file in &self.opened {
            match &file.content {
                Content::Parquet(blob, _)
                | Content::Text(blob, _)
                | Content::Ipc(blob, _)
                | Content::Capture(blob, _) => blob.confirm()?,
                Content::Batches(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the values that lossy conversions have changed so far.
    pub fn lossy(&self) -> Vec<Lossy> {
        self.rules.lossy()
    }

    /// Arranges batches to these columns, in this order, with conversion if the sources' types
    /// differ. A column that no source has is null.
    pub fn arrange(&mut self, schema: SchemaRef) -> Result<(), SourceError> {
        self.schema = schema;
        let like = self.batches.as_mut().map(|(_, like)| like);
        for unit in self.units.iter_mut().chain(like) {
            unit.keep(&self.schema)?;
        }
        Ok(())
    }

    /// Drops all columns except those named, so that they are not read. Names that no column has
    /// are ignored; check them against the whole schema first.
    pub fn keep_columns(&mut self, names: &[&str]) -> Result<(), SourceError> {
        let fields = self.schema.fields().iter();
        let kept: Fields = fields
            .filter(|field| names.contains(&field.name().as_str()))
            .cloned()
            .collect();
        self.arrange(Arc::new(Schema::new(kept)))
    }
}

/// Returns the error of a JSON file that has a record with a duplicate name.
fn name_twice(file: &Arc<File>) -> Option<SourceError> {
    let Content::Text(_, text) = &file.content else {
        return None;
    };
    Some(SourceError::Header {
        file: file.name.to_string(),
        reason: text.name_twice.clone()?,
    })
}

/// Returns the names of pandas indexes that no file has as a column, with a message for each.
fn range_notes(files: &[Arc<File>]) -> impl Iterator<Item = (String, String)> {
    let indexes = files.iter().flat_map(|file| {
        let names = file.range_indexes().into_iter();
        names.map(move |name| (name, &file.name))
    });
    indexes.map(|(name, file)| {
        let shown = named_column(&name);
        let note = format!(
            "{file}: the index '{shown}' is a range in the metadata of pandas and no column, so it is not \
             stored: call reset_index() before pandas writes the file"
        );
        (name, note)
    })
}

fn why_lacking(files: &[Arc<File>], column: &str) -> String {
    let note = range_notes(files).find(|(name, _)| name == column);
    note.map_or(String::new(), |(_, note)| format!("; {note}"))
}

fn explained(error: SourceError, files: &[Arc<File>]) -> SourceError {
    match error {
        SourceError::UnknownColumn {
            column,
            columns,
            hint,
        } => SourceError::UnknownColumn {
            hint: hint + &why_lacking(files, &column),
            column,
            columns,
        },
        other => other,
    }
}
