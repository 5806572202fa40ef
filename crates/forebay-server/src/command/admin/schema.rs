//! KV.SCHEMA: describes the values of a table, for clients that type them.

use forebay_engine::Source;
use serde_json::json;

use super::cluster::named_table;
use crate::command::Answer;
use crate::command::running::call::SessionCall;

/// KV.SCHEMA table: a JSON object. `version` is the serving version on this node, null for a live
/// table. `value` and `columns` are as in a manifest. `key` is the template that made the keys,
/// null if clients choose them. `number` is the type of each value if it is one number.
pub fn schema(call: &mut SessionCall<'_>) -> Answer {
    let source = named_table(call)?;
    let (version, key) = match source {
        Source::Batch(version) => (Some(version.version()), Some(&version.manifest().key)),
        Source::Live(_) => (None, None),
    };
    let about = json!({
        "table": source.table(),
        "version": version,
        "order": source.order(),
        "key": key,
        "value": source.kind(),
        "number": source.number(),
        "columns": source.schema(),
    });
    call.reply.bulk(about.to_string().as_bytes());
    Ok(())
}
