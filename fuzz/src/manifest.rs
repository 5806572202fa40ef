//! Manifests and pointers. What parses is consistent, and says the same when written and read
//! again.

use forebay_engine::{Bound, Manifest, OperationCounts, Partition, Pointer, RunId, RunRef, Totals};
use forebay_run::RunSummary;
use xxhash_rust::xxh3::xxh3_64;

/// The bytes as they are, and with their checksum made right.
pub fn check(data: &[u8]) {
    read(data);
    if let Some(sealed) = reseal(data) {
        read(&sealed);
    }
}

fn read(data: &[u8]) {
    if let Ok((manifest, _)) = Manifest::parse(data) {
        let (bytes, sum) = manifest.to_bytes().expect("what was read can be written");
        let again = Manifest::parse(&bytes).expect("what was written can be read");
        assert_eq!(again, (manifest, sum));
    }
    if let Ok(pointer) = Pointer::parse(data) {
        assert!(
            !pointer.history.contains(&pointer.serving.unwrap_or(0)) || pointer.serving.is_none()
        );
    }
}

/// Replaces the last line by the right one; `None` when there is no place for it.
fn reseal(data: &[u8]) -> Option<Vec<u8>> {
    let body = data.len().checked_sub(22)?;
    let mut sealed = data[..body].to_vec();
    sealed.extend_from_slice(format!("xxh3 {:016x}\n", xxh3_64(&data[..body])).as_bytes());
    Some(sealed)
}

pub fn samples() -> Vec<Vec<u8>> {
    let sealed = |text: &str| {
        format!(
            "{text}\nxxh3 {:016x}\n",
            xxh3_64(format!("{text}\n").as_bytes())
        )
    };
    let pointer =
        r#"{"forebay_pointer": 1, "sequence": 7, "serving": 3, "history": [1, 2], "stamp": 9}"#;
    vec![
        sealed(&manifest_text()).into_bytes(),
        sealed(pointer).into_bytes(),
        sealed(&manifest_of_format_1()).into_bytes(),
    ]
}

/// A table of two partitions.
fn manifest_text() -> String {
    let partition = |lower: u16, id: &str| {
        let summary = RunSummary {
            records: 2,
            key_bytes: 10,
            value_bytes: 40,
            file_bytes: 4500,
            pages: 1,
            ..RunSummary::default()
        };
        let runs = vec![RunRef {
            id: RunId::new(id).expect("an id"),
            summary,
            operations: Some(OperationCounts {
                deletes: 1,
                ..OperationCounts::default()
            }),
        }];
        (Bound::Slot(lower), runs)
    };
    let partitions = Partition::side_by_side([partition(0, "a-1"), partition(8192, "a-2")]);
    let mut totals = Totals::default();
    partitions
        .iter()
        .for_each(|partition| totals.add(&partition.totals));
    serde_json::json!({
        "forebay_manifest": 2,
        "table": "people",
        "version": 3,
        "created_unix_ms": 1_795_000_000_000_u64,
        "order": "hashed",
        "value": {"bytes": {"column": "name"}},
        "schema": [{"name": "name", "kind": "text", "nullable": true}],
        "key": "{id}",
        "delta": "add_i64",
        "ttl": {"after_ms": 1000},
        "partitions": partitions,
        "totals": totals,
    })
    .to_string()
}

/// The same as format 1 had it: partitions with a lower bound and no name.
fn manifest_of_format_1() -> String {
    let mut manifest: serde_json::Value =
        serde_json::from_str(&manifest_text()).expect("a manifest");
    manifest["forebay_manifest"] = 1.into();
    for partition in manifest["partitions"].as_array_mut().expect("a list") {
        let lower = partition["bounds"]["lower"].take();
        let fields = partition.as_object_mut().expect("an object");
        fields.retain(|name, _| name != "id" && name != "bounds");
        fields.insert("lower".to_owned(), lower);
    }
    manifest.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resealing_makes_the_right_last_line() {
        for sample in samples() {
            assert_eq!(reseal(&sample), Some(sample));
        }
    }
}
