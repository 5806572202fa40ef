//! Tests of types that the first rows do not show: only a look at all rows finds them.

use super::*;

/// Options with which only two rows are sampled.
fn hasty() -> SourceOptions {
    SourceOptions {
        sample_rows: 2,
        ..SourceOptions::default()
    }
}

/// Returns the error of the inferred types, and the rows read with the types of all rows.
fn twice(dir: &Dir, name: &str, options: &SourceOptions) -> (String, Content) {
    let set = dir.open_with(name, options).unwrap();
    let error = match read(&set) {
        Err(error @ SourceError::GuessFailed { .. }) => error.to_string(),
        other => panic!("the inferred types held: {other:?}"),
    };
    let guesses = set.look_at_all::<SourceError>(2, &|_| Ok(())).unwrap();
    let options = SourceOptions {
        guesses: Some(Arc::new(guesses)),
        ..options.clone()
    };
    let error = error.rsplit_once('/').unwrap().1.to_owned();
    (
        error,
        read(&dir.open_with(name, &options).unwrap()).unwrap(),
    )
}

fn csv(text: &str) -> (String, Content) {
    let dir = Dir::new(&[("a.csv", text.as_bytes())]);
    twice(&dir, "a.csv", &hasty())
}

fn json(text: &str) -> (String, Content) {
    let dir = Dir::new(&[("a.jsonl", text.as_bytes())]);
    twice(&dir, "a.jsonl", &hasty())
}

#[test]
fn late_types_of_csv_columns() {
    for (late, data_type) in [
        ("x7", "Utf8"),
        ("1.5", "Float64"),
        ("007", "Utf8"),
        ("+5", "Utf8"),
        ("9223372036854775808", "Utf8"),
    ] {
        let (error, content) = csv(&format!("id,n\n1,a\n2,b\n3,c\n{late},d\n"));
        let expected = format!(
            "a.csv: line 5: the column 'id' holds '{late}', which the first rows did not show"
        );
        assert_eq!(error, expected);
        assert_eq!(content.schema[0], format!("id:{data_type}?"));
        assert!(content.rejects.is_empty());
        assert_eq!(content.rows[3], format!("{late}|d"));
    }
}

#[test]
fn nothing_is_rounded_where_long_integers_meet_fractions() {
    let (_, content) = csv("n\n0.5\n1\n9007199254740993\n");
    assert_eq!(content.schema, ["n:Utf8?"]);
    assert_eq!(content.rows, ["0.5", "1", "9007199254740993"]);
    let (_, content) = csv("n\n9007199254740993\n1\n0.5\n");
    assert_eq!(content.schema, ["n:Utf8?"]);
    assert_eq!(content.rows, ["9007199254740993", "1", "0.5"]);
}

#[test]
fn columns_that_begin_with_nulls() {
    let (error, content) = csv("id,n\n1,\n2,\n3,\n4,5\n");
    assert!(
        error.contains("line 5: the column 'n' holds '5'"),
        "{error}"
    );
    assert_eq!(content.schema, ["id:Int64?", "n:Int64?"]);
    let (_, content) =
        json("{\"a\":null,\"o\":{\"x\":null}}\n{\"a\":null}\n{\"a\":5}\n{\"o\":{\"x\":[1]}}\n");
    assert_eq!(
        content.schema,
        ["a:Int64?", "o:Struct(\"x\": List(Int64))?"]
    );
    assert_eq!(content.rows, ["-|{x: -}", "-|-", "5|-", "-|{x: [1]}"]);
    let dir = Dir::new(&[(
        "a.jsonl",
        b"{\"a\":null,\"l\":[]}\n{\"a\":null}\n{\"a\":null}\n",
    )]);
    let content = read(&dir.open_with("a.jsonl", &hasty()).unwrap()).unwrap();
    assert_eq!(content.schema, ["a:Utf8?", "l:List(Utf8)?"]);
    assert_eq!(content.rows, ["-|[]", "-|-", "-|-"]);
}

#[test]
fn late_fields_and_types_of_json() {
    let start = "{\"id\":1,\"o\":{\"x\":1}}\n".repeat(2);
    for (late, news, schema) in [
        (
            "{\"id\":1.5}",
            "the column 'id' holds a value of another type",
            "id:Float64?",
        ),
        ("{\"new\":1}", "there is the field 'new'", "new:Int64?"),
        (
            "{\"o\":{\"y\":true}}",
            "there is the field 'o.y'",
            "o:Struct(\"x\": Int64, \"y\": Boolean)?",
        ),
        (
            "{\"o\":{\"x\":\"s\"}}",
            "the column 'o.x' holds a value of another type",
            "o:Struct(\"x\": Utf8)?",
        ),
        (
            "{\"id\":18446744073709551616}",
            "the column 'id' holds a value of another type",
            "id:Decimal128(38, 0)?",
        ),
        (
            "{\"l\":[{\"z\":1}]}",
            "there is the field 'l'",
            "l:List(Struct(\"z\": Int64))?",
        ),
    ] {
        let (error, content) = json(&format!("{start}{late}\n"));
        let expected = format!("a.jsonl: line 3: {news}, which the first rows did not show");
        assert_eq!(error, expected);
        assert!(
            content.schema.contains(&schema.to_owned()),
            "{:?}",
            content.schema
        );
        assert_eq!((content.rows.len(), content.rejects.len()), (3, 0));
    }
}

#[test]
fn long_numbers_keep_their_digits() {
    let text = "{\"n\":1}\n{\"n\":2}\n{\"n\":340282366920938463463374607431768211456}\n";
    let (_, content) = json(text);
    assert_eq!(content.schema, ["n:Utf8?"]);
    assert_eq!(content.rows[2], "340282366920938463463374607431768211456");
}

#[test]
fn broken_records_do_not_cause_a_second_look() {
    let dir = Dir::new(&[
        ("a.csv", b"id,n\n1,a\n2,b\n3\n4,c,d\n5,\"open\n"),
        (
            "b.jsonl",
            b"{\"id\":1}\n{\"id\":2}\n{\"id\":\n{\"id\":1-2}\nx\n[3]\n{\"id\":3}\n",
        ),
    ]);
    let content = read(&dir.open_with("a.csv", &hasty()).unwrap()).unwrap();
    assert_eq!((content.rows.len(), content.rejects.len()), (2, 3));
    let content = read(&dir.open_with("b.jsonl", &hasty()).unwrap()).unwrap();
    assert_eq!((content.rows.len(), content.rejects.len()), (3, 4));
}

#[test]
fn a_type_that_is_given_is_no_guess() {
    let dir = Dir::new(&[
        ("a.csv", b"id,n\n1,a\n2,b\nx,c\n"),
        ("b.jsonl", b"{\"id\":1}\n{\"id\":2}\n{\"id\":\"x\"}\n"),
    ]);
    for name in ["a.csv", "b.jsonl"] {
        let mut options = hasty();
        options.columns = vec![parse_column("id:int64").unwrap()];
        let content = read(&dir.open_with(name, &options).unwrap()).unwrap();
        assert_eq!(
            (content.rows.len(), content.rejects.len()),
            (2, 1),
            "{name}"
        );
    }
}

#[test]
fn a_json_column_that_no_row_shows_can_be_given() {
    let dir = Dir::new(&[(
        "a.jsonl",
        b"{\"id\":1}\n{\"id\":2}\n{\"id\":3,\"late\":\"4\"}\n",
    )]);
    let mut options = hasty();
    let given = ["late:int32", "never:date"];
    options.columns = given
        .iter()
        .map(|text| parse_column(text).unwrap())
        .collect();
    let content = read(&dir.open_with("a.jsonl", &options).unwrap()).unwrap();
    assert_eq!(
        content.schema,
        ["id:Int64?", "late:Int32?", "never:Date32?"]
    );
    assert_eq!(content.rows, ["1|-|-", "2|-|-", "3|4|-"]);
}

#[test]
fn files_share_their_inferred_types() {
    let dir = Dir::new(&[
        (
            "j/1.jsonl",
            b"{\"id\":1,\"o\":{\"x\":1}}\n{\"id\":2}\n{\"late\":1}\n",
        ),
        (
            "j/2.jsonl",
            b"{\"o\":{\"y\":\"s\",\"x\":0.5}}\n{\"id\":3}\n{\"other\":[1]}\n",
        ),
        ("c/1.csv", b"id,n\n1,9007199254740993\n2,5\n3,6\n"),
        ("c/2.csv", b"n,id\n0.5,4\n1.5,5\n2,x\n"),
    ]);
    let (_, content) = twice(&dir, "j", &hasty());
    assert_eq!(
        content.schema,
        [
            "id:Int64?",
            "o:Struct(\"x\": Float64, \"y\": Utf8)?",
            "late:Int64?",
            "other:List(Int64)?"
        ]
    );
    assert_eq!(content.rows.len(), 6);
    let (_, content) = twice(&dir, "c", &hasty());
    assert_eq!(content.schema, ["id:Utf8?", "n:Utf8?"]);
    assert_eq!(
        content.rows,
        ["1|9007199254740993", "2|5", "3|6", "4|0.5", "5|1.5", "x|2",]
    );
}

#[test]
fn columns_follow_the_order_of_the_rows_with_several_threads() {
    let mut text = String::new();
    for part in 0..4 {
        text.push_str(&format!("{{\"f{part}\":\"{}\"}}\n", "x".repeat(9 << 20)));
    }
    let dir = Dir::new(&[("a.jsonl", text.as_bytes())]);
    let options = SourceOptions {
        sample_rows: 1,
        ..SourceOptions::default()
    };
    let (_, content) = twice(&dir, "a.jsonl", &options);
    assert_eq!(
        content.schema,
        ["f0:Utf8?", "f1:Utf8?", "f2:Utf8?", "f3:Utf8?"]
    );
}

#[test]
fn an_error_of_the_caller_ends_the_look() {
    let dir = Dir::new(&[("a.csv", b"id\n1\n2\n")]);
    let set = dir.open("a.csv").unwrap();
    assert_eq!(set.text_bytes(), 4);
    let stop = |_| Err(SourceError::NoSource);
    let stopped = set.look_at_all(2, &stop);
    assert!(matches!(stopped, Err(SourceError::NoSource)));
}

#[test]
fn keys_of_a_map_are_no_columns() {
    let mut text = String::new();
    for row in 0..5_001 {
        text.push_str(&format!(
            "{{\"id\":{row},\"tags\":{{\"a{row}\":1,\"b{row}\":2}}}}\n"
        ));
    }
    let dir = Dir::new(&[("a.jsonl", text.as_bytes())]);
    let error = dir.open("a.jsonl").unwrap_err().to_string();
    assert!(
        error.contains("more than 10000 fields, such as 'a0', 'b0', 'a1'"),
        "{error}"
    );
    assert!(error.contains("--column 'tags:map(text,text)'"), "{error}");
    let set = dir.open_with("a.jsonl", &hasty()).unwrap();
    let late = set.look_at_all::<SourceError>(1, &|_| Ok(()));
    assert!(matches!(late, Err(SourceError::TooManyFields { .. })));
}

#[test]
fn records_that_are_broken_count_for_no_type() {
    let dir = Dir::new(&[
        ("open.csv", b"a,b\n1,2\n3,\"x\n"),
        ("utf8.csv", b"a,b\n1,2\n3,x\xff\n"),
        ("glued.csv", b"a,b\n1,2\n3,\"x\"y\n"),
        ("fields.csv", b"a,b\n1,2\n3,x,y\n"),
        (
            "twice.jsonl",
            b"{\"a\":1,\"b\":2}\n{\"a\":3,\"b\":\"x\",\"b\":4,\"c\":1}\n",
        ),
        (
            "inner.jsonl",
            b"{\"a\":1,\"b\":2}\n{\"a\":3,\"b\":\"x\",\"c\":[{\"d\":1,\"d\":1}]}\n",
        ),
    ]);
    for name in [
        "open.csv",
        "utf8.csv",
        "glued.csv",
        "fields.csv",
        "twice.jsonl",
        "inner.jsonl",
    ] {
        for options in [
            SourceOptions::default(),
            SourceOptions {
                sample_rows: 1,
                ..SourceOptions::default()
            },
        ] {
            let content = read(&dir.open_with(name, &options).unwrap()).unwrap();
            assert_eq!(content.schema, ["a:Int64?", "b:Int64?"], "{name}");
            assert_eq!(
                (&content.rows[..], content.rejects.len()),
                (&["1|2".to_owned()][..], 1),
                "{name}"
            );
        }
    }
}

#[test]
fn values_of_several_kinds_in_one_field_are_named() {
    let dir = Dir::new(&[(
        "a.jsonl",
        b"{\"a\":1,\"b\":[1]}\n{\"a\":3,\"b\":\"x\"}\n{\"a\":4,\"b\":{\"c\":1}}\n",
    )]);
    let content = read(&dir.open("a.jsonl").unwrap()).unwrap();
    assert_eq!(content.rows, ["3|x"]);
    for (reject, expected) in content.rejects.iter().zip([
        "line 1: the field 'b' holds a list of JSON, and values of other kinds, which",
        "line 3: the field 'b' holds an object of JSON, and values of other kinds, which",
    ]) {
        assert!(reject.starts_with(expected), "{reject}");
    }
    // They may all be in one record.
    dir.write("one.jsonl", b"{\"k\":1,\"a\":{\"b\":[1,2,{\"c\":null}]}}\n");
    let rejects = read(&dir.open("one.jsonl").unwrap()).unwrap().rejects;
    assert!(
        rejects[0].contains("values of other kinds") && !rejects[0].contains("other records"),
        "{rejects:?}"
    );
}
