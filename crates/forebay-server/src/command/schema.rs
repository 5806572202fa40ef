//! KV.SCHEMA: what the values of a table are, for clients that give them types.

use forebay_engine::Source;
use serde_json::json;

use super::Answer;
use super::call::SessionCall;
use super::cluster::named_table;

/// KV.SCHEMA table: an object in JSON. `version` is that which serves here, null of a live table;
/// `value` and `columns` are as in a manifest; `key` is the template that made the keys, null where
/// clients choose them; `number` is what each value is, if it is one number.
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
