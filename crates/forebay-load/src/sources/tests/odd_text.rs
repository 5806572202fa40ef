//! Tests of unusual text: arrays of JSON, files of old Macs, and files that are not text.

use std::io::Write;

use super::*;

fn error(name: &str, content: &[u8]) -> String {
    let dir = Dir::new(&[(name, content)]);
    let error = dir.open(name).unwrap_err().to_string();
    error
        .rsplit_once(&format!("{name}: "))
        .unwrap()
        .1
        .to_owned()
}

#[test]
fn a_json_array_gives_its_elements() {
    let pretty = "\u{feff} [\n  {\n    \"id\": 1,\n    \"t\": \"a],[{\\\"\"\n  },\n  {\n    \"id\": 2,\n    \"l\": [1, {\"x\": [true]}]\n  }\n]\n";
    let dense = "[{\"id\":1,\"t\":\"a],[{\\\"\"},{\"id\":2,\"l\":[1,{\"x\":[true]}]}]";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(pretty.as_bytes()).unwrap();
    let dir = Dir::new(&[
        ("pretty.json", pretty.as_bytes()),
        ("dense.json", dense.as_bytes()),
        ("packed.json.gz", &gzip.finish().unwrap()),
    ]);
    for name in ["pretty.json", "dense.json", "packed.json.gz"] {
        let content = read(&dir.open(name).unwrap()).unwrap();
        assert_eq!(
            content.schema,
            ["id:Int64?", "t:Utf8?", "l:List(Utf8)?"],
            "{name}"
        );
        assert_eq!(content.rows, ["1|a],[{\"|-"], "{name}");
        assert_eq!(content.places, ["element 1"]);
        assert!(
            content.rejects[0].starts_with("element 2: "),
            "{:?}",
            content.rejects
        );
    }
}

#[test]
fn elements_of_an_array_that_are_no_objects() {
    let dir = Dir::new(&[("a.json", b"[{\"a\":1}, 2, , \"x\", {\"a\":3}]\n\n")]);
    let content = read(&dir.open("a.json").unwrap()).unwrap();
    assert_eq!(content.rows, ["1", "3"]);
    let places: Vec<&str> = content
        .rejects
        .iter()
        .map(|r| r.split_once(':').unwrap().0)
        .collect();
    assert_eq!(places, ["element 2", "element 3", "element 4"]);
    assert!(content.rejects[0].contains("no JSON object"));
}

#[test]
fn a_file_with_one_broken_record_reports_its_fault() {
    for (text, reason) in [
        (
            "{\"a\":1,,\"b\":2}\n",
            "line 1: this is no JSON: key must be a string",
        ),
        (
            "[{\"a\":1,,\"b\":2}]",
            "element 1: this is no JSON: key must be a string",
        ),
        (
            "[{\"a\":1 \"b\":2}]",
            "element 1: this is no JSON: expected `,` or `}`",
        ),
        (
            "\n\n{\"a\":1,}\n",
            "line 3: this is no JSON: key must be a string",
        ),
        ("{\"a\":01}", "line 1: this is no JSON: invalid number"),
        ("[7]", "element 1 is no JSON object"),
    ] {
        let error = error("a.json", text.as_bytes());
        assert!(error.starts_with(reason), "{text}: {error}");
    }
    let dir = Dir::new(&[("a.json", b"{\"a\":1,,\"b\":2}\n{\"a\":1}\n")]);
    let content = read(&dir.open("a.json").unwrap()).unwrap();
    assert_eq!(
        (&content.schema[..], content.rejects.len()),
        (&["a:Int64?".to_owned()][..], 1)
    );
}

#[test]
fn an_array_has_to_end() {
    for text in [
        "[",
        "[{\"a\":1}",
        "[{\"a\":1},",
        "[{\"a\":1},\n{\"a\"",
        "[{\"a\":[1}]",
    ] {
        let dir = Dir::new(&[("a.json", text.as_bytes())]);
        let read = dir.open("a.json").and_then(|set| read(&set));
        let error = read.unwrap_err().to_string();
        assert!(
            error.contains("its JSON array is damaged or cut off"),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_comma_after_the_last_element_makes_a_bad_row() {
    for (text, element) in [
        ("[{\"id\":1},]", 2),
        ("[{\"id\":1} , \n ]\n", 2),
        ("[,{\"id\":1}]", 1),
    ] {
        let dir = Dir::new(&[("a.json", text.as_bytes())]);
        let content = read(&dir.open("a.json").unwrap()).unwrap();
        assert_eq!(content.rows, ["1"], "{text}");
        assert_eq!(content.rejects.len(), 1, "{text}");
        let place = format!("element {element}: ");
        assert!(
            content.rejects[0].starts_with(&place),
            "{text}: {}",
            content.rejects[0]
        );
    }
}

#[test]
fn a_long_array_is_read_in_parts() {
    let mut text = String::from("[");
    for id in 0..20_000 {
        text.push_str(&format!("{{\"id\":{id},\"t\":\"{}\"}},", "[{,".repeat(400)));
    }
    text.push_str("7]");
    let dir = Dir::new(&[("a.json", text.as_bytes())]);
    let set = dir.open("a.json").unwrap();
    assert!(set.units.len() > 1);
    let content = read(&set).unwrap();
    assert_eq!(content.rows.len(), 20_000);
    assert_eq!(content.places[19_999], "element 20000");
    assert_eq!(content.rejects, ["element 20001: this is no JSON object"]);
}

#[test]
fn reasons_name_no_lines_of_their_own() {
    let odd = "id,name\n1,a\n\n2,b,c\n3,\"d\ne\"\n4\n5,f\n6,\"g\n\",\n7,\"h\n\"i\n";
    let mac = odd.replace('\n', "\r");
    let dir = Dir::new(&[("a.csv", odd.as_bytes()), ("mac.csv", mac.as_bytes())]);
    for name in ["a.csv", "mac.csv"] {
        let content = read(&dir.open(name).unwrap()).unwrap();
        assert_eq!(content.rows.len(), 3, "{name}");
        assert_eq!(
            content.rejects,
            [
                "line 4: wrong number of fields, expected 2 got 3",
                "line 7: wrong number of fields, expected 2 got 1",
                "line 9: wrong number of fields, expected 2 got 3",
                "line 11: something follows the closing quote of the column 'name': a quote within quotes is \
                 written twice",
            ],
            "{name}"
        );
    }
}

#[test]
fn csv_of_old_macs() {
    let dir = Dir::new(&[
        ("a.csv", b"id,name\r1,\"a\rb\"\r2,c\r\r3,d,e\r4,\xff\r5,f"),
        ("mixed.csv", b"id,name\r\n1,a\n2,b\r\n"),
    ]);
    let content = read(&dir.open("a.csv").unwrap()).unwrap();
    assert_eq!(content.schema, ["id:Int64?", "name:Utf8?"]);
    assert_eq!(content.rows, ["1|a\rb", "2|c", "5|f"]);
    assert_eq!(content.places, ["line 2", "line 4", "line 8"]);
    assert!(content.rejects[0].starts_with("line 6: "));
    let content = read(&dir.open("mixed.csv").unwrap()).unwrap();
    assert_eq!(content.rows, ["1|a", "2|b"]);
}

#[test]
fn files_that_are_no_text_of_their_format() {
    let utf16: Vec<u8> = "\u{feff}{\"a\":1}\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(
        error("a.jsonl", &utf16),
        "line 1 is not JSON: the file seems to be UTF-16; convert it to UTF-8 first, as by iconv -f UTF-16 -t UTF-8"
    );
    let utf32: Vec<u8> = "\u{feff}{\"a\":1}\n"
        .chars()
        .flat_map(|character| (character as u32).to_le_bytes())
        .collect();
    assert_eq!(
        error("a.jsonl", &utf32),
        "line 1 is not JSON: the file seems to be UTF-32; convert it to UTF-8 first, as by iconv -f UTF-32 -t UTF-8"
    );
    assert!(error("a.json", b"\x1f\x8b\x08\0").contains("its compressed content is damaged"));
    assert!(error("a.csv", b"PK\x03\x04zip").contains("it is a zip archive"));
    assert!(error("a.csv", b"PAR1\x15\x04").contains("Parquet"));
    assert!(error("a.json", b"<html><body>404").contains("HTML"));
    assert!(
        error("a.jsonl", b"id,n\n1,2\n")
            .contains("line 1 is no JSON object: it begins with 'id,n'; say")
    );
    assert!(error("a.json", b"[1, 2]").contains("element 1 is no JSON object: it begins with '1'"));
    assert!(error("a.json", b"<?xml version=\"1.0\"?>").contains("XML"));
}

#[test]
fn a_first_line_that_is_not_json_is_described() {
    for (line, expected) in [
        (&b"{"[..], "line 1: the line ends within its JSON value"),
        (b"{id:1}", "line 1: this is no JSON: key must be a string"),
        (b"{\"id\":1}}", "line 1: '}' follows the object"),
        (b"{\"id\":1}TRAILER", "line 1: 'TRAILER' follows the object"),
        (
            b"{\"id\":1}\r{\"id\":2}\r",
            "line 1: more than one JSON value in place of one: a carriage return alone ends no line",
        ),
        (b"{\"id\":1,\"t\":\"\\ud800\"}", "line 1: "),
        (
            b"\n[{\"id\":1}\n{\"id\":2}]",
            "element 1: more than one JSON value in place of one: a comma",
        ),
        (
            b"[,7]",
            "element 1 is no JSON object: there is nothing before the comma",
        ),
        (
            b"\x01\n",
            "line 1 is no JSON object: it begins with '\\u{1}'",
        ),
        (
            "\u{feff}\u{feff}\n".as_bytes(),
            "line 1 is no JSON object: it begins with '\\u{feff}'; say by --format",
        ),
        (b"{\"id\":1} {\"id\":2}", "line 1: more than one JSON value"),
        (
            b"{\"id\":\"a\xff\"}",
            "line 1: the byte 0xff after '{\"id\":\"a' is not UTF-8",
        ),
    ] {
        let message = error("a.jsonl", line);
        assert!(message.starts_with(expected), "{message}");
    }
    assert!(error("a.jsonl", &[0; 64]).contains("seems to be nothing but zeros"));
}

#[test]
fn json_without_records_or_fields_is_reported() {
    for text in ["[]", " [ ]\n", "\n \n\n"] {
        let message = error("a.json", text.as_bytes());
        assert!(
            message.starts_with("it has no records, so that"),
            "{message}"
        );
    }
    for text in ["{}\n{}\n", "[{}]"] {
        let message = error("a.json", text.as_bytes());
        assert!(
            message.starts_with("none of its records has a field"),
            "{message}"
        );
    }
    for (text, expected) in [
        (
            "{\"k\":1,\"k\":2}",
            "line 1: the name 'k' occurs twice in one object",
        ),
        (
            "\n{}\n{\"a\":{\"k\":1,\"k\":2}}\n{\"b\":1,\"b\":2}",
            "line 3: the name 'k' occurs twice in one object",
        ),
        (
            "[{\"k\":1,\"k\":2}]",
            "element 1: the name 'k' occurs twice in one object",
        ),
    ] {
        assert_eq!(error("a.json", text.as_bytes()), expected);
    }
    // Among files that have records it adds none.
    let dir = Dir::new(&[("a.json", b"[]"), ("b.json", b"[{\"id\":1}]")]);
    assert_eq!(read(&dir.open("").unwrap()).unwrap().rows, ["1"]);
}

#[test]
fn bytes_that_are_no_utf8_have_one_line() {
    let dir = Dir::new(&[
        ("a.csv", b"id,name\n1,a\n2,b\xff\n"),
        ("a.jsonl", b"{\"id\":1}\n{\"id\":\"b\xff\"}\n"),
    ]);
    for (name, expected) in [
        ("a.csv", "line 3: the byte 0xff after '2,b' is not UTF-8;"),
        (
            "a.jsonl",
            "line 2: the byte 0xff after '{\"id\":\"b' is not UTF-8;",
        ),
    ] {
        let rejects = read(&dir.open(name).unwrap()).unwrap().rejects;
        assert!(rejects[0].starts_with(expected), "{rejects:?}");
    }
}

#[test]
fn numbers_of_text_files_are_reported_as_numbers() {
    let columns = ["a:int64", "b[]:int8", "c:int64", "m:map(text, int8)"];
    let options = SourceOptions {
        columns: columns.map(|text| parse_column(text).unwrap()).into(),
        ..SourceOptions::default()
    };
    let dir = Dir::new(&[(
        "a.jsonl",
        b"{\"a\":7.5,\"b\":null}\n{\"b\":[300]}\n{\"c\":\"x\"}\n{\"m\":{\"k\":0.5}}\n{\"a\":1e30}\n",
    )]);
    let content = read(&dir.open_with("a.jsonl", &options).unwrap()).unwrap();
    assert_eq!(
        content.rejects,
        [
            "line 1: the column 'a' holds 7.5 (number), which int64 does not hold exactly; \
             --column 'a:int64:round' would make it the nearest",
            "line 2: the column 'b[]' holds 300 (number), which int8 does not hold exactly; \
             --column 'b[]:int8:null' would make it null",
            "line 3: the column 'c' holds \"x\" (text), which does not read as int64; \
             --column 'c:int64:null' would make it null",
            // No path of --column can name places in maps.
            "line 4: the column 'm.value' holds 0.5 (number), which int8 does not hold exactly",
            "line 5: the column 'a' holds 1e30 (number), which int64 does not hold exactly; \
             --column 'a:int64:null' would make it null",
        ]
    );
}

#[test]
fn a_header_of_one_column_hints_at_its_delimiter() {
    let message = error("a.csv", b"id;name\n1;a\n");
    assert!(
        message.contains("--csv-delimiter ';'") && message.contains("'id;name'"),
        "{message}"
    );
    assert!(error("a.csv", b"id\tname\n").contains("--csv-delimiter '\\t'"));
    assert!(error("a.tsv", b"id,name\n").contains("--csv-delimiter ','"));
    let dir = Dir::new(&[("a.csv", b"id;name\n1;a\n")]);
    let options = SourceOptions {
        delimiter_given: true,
        ..SourceOptions::default()
    };
    let content = read(&dir.open_with("a.csv", &options).unwrap()).unwrap();
    assert_eq!(content.rows, ["1;a"]);
}

#[test]
fn several_texts_are_null() {
    let dir = Dir::new(&[("a.csv", b"id,n\n1,NA\n2,\\N\n3,\n4,5\n")]);
    let mut options = SourceOptions::default();
    options.csv.null = vec!["NA".to_owned(), "\\N".to_owned()];
    let content = read(&dir.open_with("a.csv", &options).unwrap()).unwrap();
    assert_eq!(content.schema, ["id:Int64?", "n:Int64?"]);
    assert_eq!(content.rows, ["1|-", "2|-", "3|-", "4|5"]);
}

#[test]
fn values_that_nest_without_end_are_bad_rows() {
    let lists = format!(
        "{{\"id\":2,\"a\":{}{}}}",
        "[".repeat(200_000),
        "]".repeat(200_000)
    );
    let objects = format!(
        "{{\"id\":3,\"b\":{}1{}}}",
        "{\"b\":".repeat(200_000),
        "}".repeat(200_000)
    );
    let text = format!("{{\"id\":1,\"a\":\"x\"}}\n{lists}\n{objects}\n{{\"id\":4}}\n");
    let dir = Dir::new(&[("a.jsonl", text.as_bytes())]);
    let content = read(&dir.open("a.jsonl").unwrap()).unwrap();
    assert_eq!(content.schema, ["id:Int64?", "a:Utf8?"]);
    assert_eq!(content.rows, ["1|x", "4|-"]);
    let reason = "its values nest deeper than 32";
    assert_eq!(
        content.rejects,
        [format!("line 2: {reason}"), format!("line 3: {reason}")]
    );
}

#[test]
fn text_after_an_array_is_refused() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"\n[{\"a\":1},\n{\"a\":2}]\n\n x").unwrap();
    let packed = gzip.finish().unwrap();
    for (name, content, expected) in [
        (
            "a.json",
            &b"[{\"a\":1}]{\"a\":2}"[..],
            "line 1: '{\"a\":2}' follows the ] that ends the JSON array",
        ),
        ("a.json", b"[]{\"a\":2}", "line 1: '{\"a\":2}' follows"),
        (
            "a.json",
            b"[{\"a\":1}]\n{\"a\":2}\n",
            "line 2: '{\"a\":2}' follows",
        ),
        ("a.json", b"[]\n42", "line 2: '42' follows"),
        ("a.json", b"[{\"a\":1}]]", "line 1: ']' follows"),
        ("a.json.gz", &packed, "line 5: 'x' follows"),
    ] {
        let dir = Dir::new(&[(name, content)]);
        let error = dir.open(name).and_then(|set| read(&set)).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(&format!("{name}: {expected}")), "{error}");
    }
}

#[test]
fn advice_about_the_format_depends_on_whether_it_was_given() {
    let zeros = b"a,b\n1,2\n3,\0\0\0\0\0\0\0\0\0\n";
    let dir = Dir::new(&[("a.csv", zeros), ("a.jsonl", b"id,n\n")]);
    let message = |name: &str, format| {
        let options = SourceOptions {
            format,
            ..SourceOptions::default()
        };
        let error = dir.open_with(name, &options).unwrap_err();
        error
            .to_string()
            .rsplit_once(&format!("{name}: "))
            .unwrap()
            .1
            .to_owned()
    };
    let start = "line 3 is not CSV: the file seems to be binary; ";
    for (format, advice) in [
        (None, "name its format by --format"),
        (Some(Format::Csv), "it is of another format, or damaged"),
    ] {
        assert_eq!(message("a.csv", format), format!("{start}{advice}"));
    }
    let given = message("a.jsonl", Some(Format::JsonLines));
    assert_eq!(
        given,
        "line 1 is no JSON object: it begins with 'id,n'; jsonl is an object a line, or one array of objects"
    );
}

#[test]
fn a_header_that_is_no_utf8_names_the_byte() {
    let message = error("a.csv", b"id,caf\xe9\n1,2\n");
    assert_eq!(
        message,
        "the name of column 2: the byte 0xe9 after 'caf' is not UTF-8; convert the file first, as by iconv -f ENCODING \
         -t UTF-8, where ENCODING is that of the file, such as ISO-8859-1"
    );
}
