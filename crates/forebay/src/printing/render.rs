//! Formats values and lists for output.

use std::fmt;

use anyhow::Context as _;
use forebay_engine::{Manifest, Source, ValueKind};
use forebay_run::number::Number;
use forebay_run::row::{ListView, RowView, Schema, write_json_bytes};

/// A printer of the values of one table.
#[derive(Debug, Clone, Copy)]
pub struct Renderer<'a> {
    kind: &'a ValueKind,
    schema: &'a Schema,
    number: Option<Number>,
}

impl<'a> Renderer<'a> {
    pub fn new(source: Source<'a>) -> Self {
        Self {
            kind: source.kind(),
            schema: source.schema(),
            number: source.number(),
        }
    }

    /// Returns the printer for a version's values, whether the version exists or is being built.
    pub fn of_manifest(manifest: &'a Manifest) -> Self {
        Self {
            kind: &manifest.value,
            schema: &manifest.schema,
            number: match manifest.value {
                ValueKind::Number { number, .. } => Some(number),
                _ => None,
            },
        }
    }

    /// Appends the value as JSON: a row as an object, a list as an array, a number as one. Bytes
    /// are a string if they are UTF-8, otherwise `{"base64": "..."}`.
    pub fn json(&self, value: &[u8], out: &mut Vec<u8>) -> anyhow::Result<()> {
        let written = match self.kind {
            ValueKind::Row => RowView::new(self.schema, value).and_then(|row| row.json(out)),
            ValueKind::List { item, .. } => {
                ListView::new(item, value).and_then(|list| list.json(out))
            }
            ValueKind::Bytes { .. } | ValueKind::Number { .. } => match self.number {
                Some(number) => return Ok(number.write_json(value, out)?),
                None => {
                    write_json_bytes(value, out);
                    Ok(())
                }
            },
        };
        written.context("cannot read the value: verify the table")
    }

    /// Appends the value for people: bytes as they are, all else as JSON.
    pub fn text(&self, value: &[u8], out: &mut Vec<u8>) -> anyhow::Result<()> {
        match self.kind {
            ValueKind::Bytes { .. } if self.number.is_none() => {
                out.extend_from_slice(value);
                Ok(())
            }
            _ => self.json(value, out),
        }
    }
}

/// A list with aligned columns under a head line.
#[derive(Debug)]
pub struct Columns<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Columns<N> {
    pub fn new(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.map(str::to_owned)],
        }
    }

    pub fn row(&mut self, row: [String; N]) {
        self.rows.push(row);
    }
}

impl<const N: usize> fmt::Display for Columns<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: [usize; N] = std::array::from_fn(width);
        for row in &self.rows {
            let cells: Vec<String> = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}
