//! Tests of the manifest's checks.

use forebay_run::row::Column;
use proptest::prelude::*;

use super::*;
use crate::documents::column_profile::{
    ColumnProfile, MeasuredColumn, QUANTILE_PERCENTS, ValueRange,
};

fn run(id: &str, records: u64) -> RunRef {
    let summary = RunSummary {
        records,
        key_bytes: records * 4,
        value_bytes: records * 10,
        content: ContentSum(records.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        file_bytes: 4096,
        ..RunSummary::default()
    };
    RunRef {
        id: RunId::new(id).expect("a run id"),
        summary,
        operations: None,
    }
}

fn manifest(partitions: Vec<Partition>, order: Order) -> Manifest {
    let draft = ManifestDraft {
        order,
        value: ValueKind::Row,
        schema: Schema::new(vec![Column::new("a", Kind::Int64, true)]),
        key: "{a}".to_owned(),
        delta: None,
        ttl: None,
        onto: None,
        partitions,
        stats: vec![ColumnStats {
            column: "a".to_owned(),
            nulls: 1,
            values: Some(profile()),
        }],
        source: "test".to_owned(),
    };
    Manifest::from_draft(draft, TableName::new("t").expect("a name"), 7, 1)
}

fn profile() -> ColumnProfile {
    ColumnProfile {
        of: MeasuredColumn::Number,
        values: 29,
        zeros: 1,
        negative: 0,
        nan: 0,
        infinite: 0,
        range: Some(ValueRange {
            min: 0.0,
            max: 100.5,
            mean: Some(50.0),
            std: Some(25.0),
            quantiles: QUANTILE_PERCENTS.map(f64::from),
        }),
        looked_at: 29,
        common: Some(0.25),
        distinct: Some(7),
    }
}

fn hashed() -> Manifest {
    let part = |slot, id, rows| (Bound::Slot(slot), vec![run(id, rows)]);
    let parts = [part(0, "a", 10), part(100, "b", 20)];
    manifest(Partition::side_by_side(parts), Order::Hashed)
}

fn ordered() -> Manifest {
    let part = |key: &[u8], id, rows| (Bound::Key(key.to_vec()), vec![run(id, rows)]);
    let parts = [part(b"", "a", 10), part(b"m\xff", "b", 20)];
    manifest(Partition::side_by_side(parts), Order::Ordered)
}

fn round_trip(manifest: &Manifest) -> Result<Manifest, DocumentError> {
    Manifest::parse(&manifest.to_bytes().expect("sealed").0).map(|(manifest, _)| manifest)
}

#[test]
fn manifests_are_read_as_they_were_written() {
    for manifest in [hashed(), ordered()] {
        assert_eq!(round_trip(&manifest), Ok(manifest));
    }
    let mut empty = hashed();
    empty.partitions = Partition::side_by_side([(Bound::Slot(0), Vec::new())]);
    empty.totals = Totals::default();
    empty.stats.clear();
    assert_eq!(round_trip(&empty), Ok(empty));
}

#[test]
fn inconsistent_manifests_are_refused() {
    type Change = fn(&mut Manifest);
    let cases: Vec<(&str, Change)> = vec![
        ("rows", |m| m.totals.rows += 1),
        ("bytes", |m| m.totals.bytes -= 1),
        ("content", |m| m.totals.content = ContentSum(1)),
        ("partition", |m| {
            m.partitions[0].totals.rows += 1;
            m.totals.rows += 1;
        }),
        ("no partitions", |m| {
            m.partitions.clear();
            m.totals = Totals::default();
        }),
        ("first bound", |m| {
            m.partitions[0].bounds.lower = Bound::Slot(1)
        }),
        ("falling", |m| m.partitions[1].bounds.lower = Bound::Slot(0)),
        ("a gap", |m| m.partitions[1].bounds.lower = Bound::Slot(101)),
        ("an end", |m| {
            m.partitions[1].bounds.upper = Some(Bound::Slot(200))
        }),
        ("one id twice", |m| m.partitions[1].id = m.partitions[0].id),
        ("kind of bound", |m| {
            m.partitions[1].bounds.lower = Bound::Key(b"x".to_vec())
        }),
        ("order", |m| m.order = Order::Ordered),
        ("same run twice", |m| {
            m.partitions[1].runs[0].id = m.partitions[0].runs[0].id.clone()
        }),
        ("nulls", |m| m.stats[0].nulls = 31),
        ("zeros", |m| {
            m.stats[0].values.as_mut().unwrap().zeros = 30;
        }),
        ("stats twice", |m| m.stats.push(m.stats[0].clone())),
        ("version", |m| m.version = 0),
    ];
    for (name, change) in cases {
        let mut changed = hashed();
        change(&mut changed);
        assert!(
            matches!(round_trip(&changed), Err(DocumentError::Inconsistent(_))),
            "{name}"
        );
    }
}

#[test]
fn unknown_formats_fields_and_paths_are_refused() {
    let mut newer = hashed();
    newer.forebay_manifest = 4;
    assert_eq!(
        round_trip(&newer),
        Err(DocumentError::Format { found: 4, known: 3 })
    );

    let text = serde_json::to_value(hashed()).expect("json");
    let mut outside = text.clone();
    outside["partitions"][0]["runs"][0]["id"] = "../other/a".into();
    let mut strange = text.clone();
    strange["surprise"] = true.into();
    let mut summary = text.clone();
    summary["partitions"][0]["runs"][0]["summary"]["surprise"] = 1.into();
    let mut name = text;
    name["table"] = "../t".into();
    for bad in [outside, strange, summary, name] {
        let (bytes, _) = seal(&bad).expect("sealed");
        assert!(
            matches!(Manifest::parse(&bytes), Err(DocumentError::Shape(_))),
            "{bad}"
        );
    }
}

#[test]
fn several_runs_bound_the_number_of_rows() {
    assert_eq!(hashed().rows_between(), (30, 30));
    assert!(hashed().is_merged() && hashed().content().is_some());
    let mut newer = run("c", 5);
    newer.operations = Some(OperationCounts {
        inserts: 1,
        deletes: 2,
        deltas: 1,
    });
    assert_eq!(newer.counts(), [1, 1, 2, 1]);
    let mut several = hashed();
    several.partitions[0].runs.push(newer);
    assert!(round_trip(&several).is_err(), "the totals are the old ones");
    several.partitions[0] = several.partitions[0].with_runs(several.partitions[0].runs.clone());
    several.totals.add(&Totals::of_run(&run("c", 5).summary));
    assert_eq!(round_trip(&several), Ok(several.clone()));
    assert_eq!(several.rows_between(), (28, 33));
    assert_eq!((several.rows(), several.runs_deep()), (33, 2));
    assert_eq!(several.content(), None);
    let operations = &mut several.partitions[0].runs[2 - 1].operations;
    operations.as_mut().expect("counts").deletes = 9;
    assert!(
        round_trip(&several).is_err(),
        "more operations than records"
    );
}

#[test]
fn declarations_of_a_table_are_read_back() {
    let mut declared = hashed();
    declared.delta = Some(DeltaKind::AddI64Saturating);
    declared.onto = Some(6);
    for ttl in [Ttl::AfterMs(1000), Ttl::Column("until".to_owned())] {
        declared.ttl = Some(ttl);
        for number in [Number::I64, Number::F64] {
            declared.value = ValueKind::Number {
                column: "a".to_owned(),
                number,
            };
            assert_eq!(round_trip(&declared), Ok(declared.clone()));
        }
    }
}

/// The manifest as format 1 had it.
fn of_format_1(manifest: &Manifest) -> serde_json::Value {
    let mut old = serde_json::to_value(manifest).expect("json");
    old["forebay_manifest"] = 1.into();
    for partition in old["partitions"].as_array_mut().expect("a list") {
        let partition = partition.as_object_mut().expect("an object");
        partition.remove("id");
        let bounds = partition.remove("bounds").expect("bounds");
        partition.insert("lower".to_owned(), bounds["lower"].clone());
    }
    old
}

#[test]
fn format_1_is_read_as_partitions_side_by_side() {
    for manifest in [hashed(), ordered()] {
        let old = of_format_1(&manifest);
        let (bytes, sum) = seal(&old).expect("sealed");
        assert_eq!(Manifest::parse(&bytes), Ok((manifest, sum)));
        // Missing, extra or wrong fields are refused, as in the current format.
        let mut without = old.clone();
        without["partitions"][1]
            .as_object_mut()
            .expect("an object")
            .remove("lower");
        let mut with = old.clone();
        with["partitions"][1]["id"] = 7.into();
        with["surprise"] = 1.into();
        let mut falling = old.clone();
        falling["partitions"][1]["lower"] = old["partitions"][0]["lower"].clone();
        for bad in [without, with, falling] {
            let (bytes, _) = seal(&bad).expect("sealed");
            assert!(Manifest::parse(&bytes).is_err(), "{bad}");
        }
    }
}

#[test]
fn figures_are_read_as_they_were_written() {
    let mut manifest = hashed();
    let range = manifest.stats[0].values.as_mut().unwrap().range.as_mut();
    let range = range.unwrap();
    (range.min, range.max) = (-f64::MAX, f64::MAX);
    (range.mean, range.std) = (Some(9.409340012568248e18), None);
    range.quantiles = std::array::from_fn(|at| (at as f64 + 0.1).powi(at as i32 * 9 - 90));
    assert_eq!(round_trip(&manifest), Ok(manifest));
}

#[test]
fn format_2_is_read_as_counting_only_nulls() {
    let mut manifest = hashed();
    manifest.stats[0].values = None;
    let mut old = serde_json::to_value(&manifest).expect("json");
    old["forebay_manifest"] = 2.into();
    let (bytes, sum) = seal(&old).expect("sealed");
    assert_eq!(Manifest::parse(&bytes), Ok((manifest, sum)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_flipped_bit_is_detected(at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let mut bytes = ordered().to_bytes().expect("sealed").0;
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Manifest::parse(&bytes).is_err());
    }

    /// Changes one value of the JSON, with a valid checksum. The manifest may be refused; if it is
    /// accepted, it must be consistent.
    #[test]
    fn accepted_manifests_have_passed_the_checks(
        pick in any::<prop::sample::Index>(), number in any::<u64>(), kind in 0..5,
    ) {
        let mut tree = serde_json::to_value(ordered()).expect("json");
        let mut leaves = Vec::new();
        paths(&tree, String::new(), &mut leaves);
        let path = &leaves[pick.index(leaves.len())];
        *tree.pointer_mut(path).expect("a path of the tree") = match kind {
            0 => number.into(),
            1 => serde_json::Value::Null,
            2 => "..".into(),
            3 => serde_json::Value::Array(Vec::new()),
            _ => (number % 3).into(),
        };
        let text = serde_json::to_vec(&tree).expect("text");
        if let Ok((manifest, _)) = Manifest::parse(&crate::documents::seal::seal_text(text)) {
            prop_assert_eq!(manifest.check(), Ok(()));
            prop_assert!(manifest.file_bytes() > 0);
        }
    }
}

/// The JSON pointers of all values of a tree.
fn paths(tree: &serde_json::Value, at: String, found: &mut Vec<String>) {
    match tree {
        serde_json::Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                paths(item, format!("{at}/{index}"), found);
            }
        }
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                paths(field, format!("{at}/{name}"), found);
            }
        }
        _ => {}
    }
    found.push(at);
}
