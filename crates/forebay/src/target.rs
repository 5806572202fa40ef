//! `TABLE` or `TABLE@VERSION`, the argument of commands that read a version.

use std::str::FromStr;

use forebay_engine::TableName;

/// A version of a table: the given one, otherwise the serving one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub table: TableName,
    pub version: Option<u64>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (table, version) = match text.split_once('@') {
            Some((table, version)) => (table, Some(parse_version(version)?)),
            None => (text, None),
        };
        let table = table.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { table, version })
    }
}

fn parse_version(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is not a version: write TABLE@NUMBER"))
}
