mod binary;
mod csv_model;
mod damage;
mod far;
mod finding;
mod guessing;
mod large_values;
mod odd_text;
mod splitting;
mod text;

use std::path::Path;

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};

use super::*;

/// A directory with files.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new(files: &[(&str, &[u8])]) -> Dir {
        let dir = Dir(tempfile::tempdir().unwrap());
        for (name, content) in files {
            dir.write(name, content);
        }
        dir
    }

    #[expect(clippy::disallowed_methods, reason = "makes input files")]
    fn write(&self, name: &str, content: &[u8]) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn path(&self, name: &str) -> String {
        Path::join(self.0.path(), name).to_str().unwrap().to_owned()
    }

    fn open(&self, name: &str) -> Result<SourceSet, SourceError> {
        self.open_with(name, &SourceOptions::default())
    }

    fn open_with(&self, name: &str, options: &SourceOptions) -> Result<SourceSet, SourceError> {
        SourceSet::open(&vec![self.path(name)].into(), options)
    }
}

/// Returns all rows of a set as text.
#[derive(Debug, Default, PartialEq)]
struct Content {
    /// `name:type`, a `?` when nullable.
    schema: Vec<String>,
    rows: Vec<String>,
    places: Vec<String>,
    /// Place and reason.
    rejects: Vec<String>,
}

fn read(set: &SourceSet) -> Result<Content, SourceError> {
    let mut content = Content::default();
    for field in set.schema.fields() {
        let null = if field.is_nullable() { "?" } else { "" };
        content
            .schema
            .push(format!("{}:{}{null}", field.name(), field.data_type()));
    }
    for unit in &set.units {
        let mut next = 0;
        let (mut rows, mut places, mut rejects) = (Vec::new(), Vec::new(), Vec::new());
        unit.read::<SourceError>(
            |batch, origin| {
                assert_eq!(origin.first_row, next);
                next += batch.num_rows() as u64;
                rows.extend(show(&batch));
                places.extend((0..batch.num_rows()).map(|row| origin.place(row).to_string()));
                Ok(())
            },
            |reject| {
                rejects.push(format!("{}: {}", reject.place, reject.reason));
                Ok(())
            },
        )?;
        content.rows.append(&mut rows);
        content.places.append(&mut places);
        content.rejects.append(&mut rejects);
    }
    Ok(content)
}

fn show(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("-");
    let columns: Vec<ArrayFormatter<'_>> = (batch.columns().iter())
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
        .collect();
    let row = |row| {
        let cells = columns.iter().map(|column| column.value(row).to_string());
        cells.collect::<Vec<_>>().join("|")
    };
    (0..batch.num_rows()).map(row).collect()
}
