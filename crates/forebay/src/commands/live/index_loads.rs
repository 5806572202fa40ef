//! Secondary indexes of a live table, which get a row for each row of a load.
//!
//! An index is a live table of its own (docs/papers/planned-bulk-insertion.md, 5.1).

use clap::Args;
use forebay_cluster::model::Model;
use forebay_engine::live::LiveOptions;
use forebay_engine::{TableName, ValueKind};
use forebay_load::encode::Verb;
use forebay_load::key::KeyTemplate;
use forebay_load::load::LoadRequest;
use forebay_load::sources::Input;

/// The indexes that get rows with a table.
#[derive(Debug, Clone, Default, Args)]
pub struct IndexArgs {
    /// In a cluster: a secondary index, as by_city='{city}/{id}'. It is a live table that gets a
    /// row for each row. The template is its key, which must be unique for each row. An index with
    /// rows has the columns of the sources that its table names; any other index has the column of
    /// --key as its value. May be repeated; each index reads the sources once more
    #[arg(
        long = "index",
        value_name = "TABLE=TEMPLATE",
        value_parser = parse_index,
        help_heading = "Rows"
    )]
    pub indexes: Vec<IndexArg>,
}

/// An index and the template of its keys.
#[derive(Debug, Clone)]
pub struct IndexArg {
    pub table: TableName,
    pub key: KeyTemplate,
}

/// A load into one table of several.
#[derive(Debug, Clone)]
pub struct PooledLoad {
    pub request: LoadRequest,
    pub options: LiveOptions,
}

/// Parses NAME=TEMPLATE.
pub fn parse_index(text: &str) -> Result<IndexArg, String> {
    let (name, template) = text.split_once('=').ok_or_else(|| {
        format!(
            "'{text}' is no index: write its table and its key, as in by_city='{{city}}/{{id}}'"
        )
    })?;
    let table = TableName::new(name).map_err(|error| error.to_string())?;
    let key = template.parse::<KeyTemplate>();
    let key = key.map_err(|error| error.to_string())?;
    Ok(IndexArg { table, key })
}

/// Returns the loads into the indexes of a table, beside the load `of` the table itself.
pub fn pooled(
    indexes: &[IndexArg],
    of: &LoadRequest,
    model: &Model,
) -> anyhow::Result<Vec<PooledLoad>> {
    check(indexes, of)?;
    let loads = indexes.iter().map(|index| index.pooled(of, model));
    loads.collect()
}

fn check(indexes: &[IndexArg], of: &LoadRequest) -> anyhow::Result<()> {
    let mut names: Vec<&TableName> = indexes.iter().map(|index| &index.table).collect();
    names.push(&of.table);
    names.sort();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        wrong!(
            "--index: {} is named twice, or is the table itself",
            twice[0]
        );
    }
    if indexes.is_empty() {
        return Ok(());
    }
    if of.operation_column.is_some() || of.verb == Verb::Delta {
        wrong!(
            "--index: rows of an index come with rows that update or insert, without --op: what a deletion or a delta \
             leaves of a row is not known here"
        );
    }
    let is_read_once = match &of.sources {
        Input::Batches(_) => true,
        Input::Files(files) => files.iter().any(|file| file == "-"),
    };
    if is_read_once {
        wrong!(
            "--index: batches and standard input can be read once, and each index reads the sources once more: write \
             them to files first"
        );
    }
    Ok(())
}

impl IndexArg {
    fn pooled(&self, of: &LoadRequest, model: &Model) -> anyhow::Result<PooledLoad> {
        let table = &self.table;
        let entry = model.table(table);
        let Some(live) = entry.and_then(|entry| entry.live()) else {
            if entry.is_some() {
                wrong!(
                    "--index: {table} is a batch table, whose versions come by push: name a live table, or one that \
                     is not there yet and make it (forebay create)"
                );
            }
            wrong!(
                "--index: the cluster has no live table {table}: make it first (forebay create {table} --mode live \
                 --order ordered ...)"
            );
        };
        let columns: Vec<&str> = of.key.columns().collect();
        let value_column = match (&live.options.value, &columns[..]) {
            (ValueKind::Row, _) => None,
            (_, [only]) => Some((*only).to_owned()),
            _ => wrong!(
                "--index: the values of {table} are one column, and the key of {} has several: make it a table of rows \
                 (--value row) with these columns",
                of.table
            ),
        };
        Ok(PooledLoad {
            options: live.options.clone(),
            request: LoadRequest {
                table: table.clone(),
                key: self.key.clone(),
                value_column,
                leaves_out: true,
                ..of.clone()
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_a_table_and_a_key() {
        let index = parse_index("by_city={city}/{id}").unwrap();
        assert_eq!(index.table.as_str(), "by_city");
        assert_eq!(index.key.columns().collect::<Vec<_>>(), ["city", "id"]);
        assert!(parse_index("by_city").unwrap_err().contains("is no index"));
        assert!(parse_index("no/name={id}").is_err());
        assert!(parse_index("a={").is_err());
    }
}
