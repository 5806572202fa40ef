//! Tests of the written forms: CSV, JSON lines, keys, values of bytes.

use arrow_array::RecordBatch;
use arrow_schema::DataType;
use forebay_run::row::{ListWriter, RowWriter, Schema};

use super::files::{export, read_back};
use crate::export::*;

fn small() -> RecordBatch {
    let text = "{\"id\":1,\"name\":\"a,\\\"b\\\"\\nc\",\"tags\":[\"x\"],\"late\":true}\n{\"id\":2,\"name\":\"\"}\n";
    read_back("a.jsonl", text.as_bytes()).remove(0)
}

#[test]
fn csv_and_json_lines() {
    let (_, csv) = export(&small(), "{id}", ExportFormat::Csv).unwrap();
    assert_eq!(
        String::from_utf8(csv).unwrap(),
        "id,name,tags,late\n1,\"a,\"\"b\"\"\nc\",\"[\"\"x\"\"]\",true\n2,\"\",,\n"
    );
    let (_, json) = export(&small(), "{id}", ExportFormat::JsonLines).unwrap();
    assert_eq!(
        String::from_utf8(json.clone()).unwrap(),
        concat!(
            "{\"id\":1,\"name\":\"a,\\\"b\\\"\\nc\",\"tags\":[\"x\"],\"late\":true}\n",
            "{\"id\":2,\"name\":\"\",\"tags\":null,\"late\":null}\n"
        )
    );
    assert_eq!(read_back("b.jsonl", &json)[0], small());
}

/// The columns from which keys and values of bytes were made: `id` is text, `raw` is binary.
fn made_of() -> Schema {
    let columns = [("id", Kind::Text), ("raw", Kind::Binary)];
    let columns = columns.map(|(name, kind)| Column::new(name, kind, true));
    Schema::new(columns.to_vec())
}

/// Exports records unchanged.
fn write(
    values: ExportValues<'_>,
    (key, value): (Option<&str>, &str),
    format: ExportFormat,
    binary: bool,
    records: &[(&[u8], &[u8])],
) -> Result<Vec<u8>, ExportError> {
    let made_of = made_of();
    let schema = match values {
        ExportValues::Rows(schema) => schema,
        _ => &made_of,
    };
    let options = ExportOptions {
        values,
        schema,
        value,
        key,
        format,
        binary,
    };
    let mut exporter = Exporter::new(&options, Vec::new())?;
    for (key, value) in records {
        exporter.push(key, value)?;
    }
    exporter.finish().map(|(_, bytes)| bytes)
}

fn text(result: Result<Vec<u8>, ExportError>) -> String {
    String::from_utf8(result.unwrap()).unwrap()
}

#[test]
fn bytes_are_text_where_they_can_be() {
    use ExportFormat::{Arrow, Csv, JsonLines, Parquet};
    let records: &[(&[u8], &[u8])] = &[(b"k1", b"v,1"), (b"k2", b"\xff"), (b"k3", b"")];
    let made = (Some("{id}"), "id");
    assert_eq!(
        text(write(ExportValues::Bytes, made, JsonLines, false, records)),
        "{\"key\":\"k1\",\"value\":\"v,1\"}\n{\"key\":\"k2\",\"value\":{\"base64\":\"/w==\"}}\n\
         {\"key\":\"k3\",\"value\":\"\"}\n"
    );
    assert_eq!(
        text(write(ExportValues::Bytes, made, Csv, false, records)),
        "key,value\nk1,\"v,1\"\nk2,\"{\"\"base64\"\":\"\"/w==\"\"}\"\nk3,\"\"\n"
    );
    for (format, name) in [(Parquet, "a.parquet"), (Arrow, "a.arrow")] {
        let types = |result: Result<Vec<u8>, ExportError>| -> Vec<DataType> {
            let batch = read_back(name, &result.unwrap()).remove(0);
            let fields = batch.schema_ref().fields().iter();
            fields.map(|field| field.data_type().clone()).collect()
        };
        let error = write(ExportValues::Bytes, made, format, false, records).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("the value of the key 'k2' is not UTF-8"),
            "{error}"
        );
        let text = || DataType::Utf8;
        let binary = || DataType::Binary;
        for (made, asked, expected) in [
            (made, false, [text(), text()]),
            (made, true, [binary(), binary()]),
            // The key is a binary column, or eight bytes of a time.
            ((Some("{raw}"), "id"), false, [binary(), text()]),
            ((Some("{id:be}"), "id"), false, [binary(), text()]),
            ((Some("{id}"), "raw"), false, [text(), binary()]),
            // A live table, which accepts any bytes.
            ((None, "raw"), false, [text(), text()]),
        ] {
            let written = write(ExportValues::Bytes, made, format, asked, &records[..1]);
            assert_eq!(types(written), expected, "{made:?} {asked}");
        }
    }
}

#[test]
fn lists_have_keys_of_their_own() {
    let item = Kind::Int32;
    let mut list = ListWriter::new(&item);
    list.begin();
    list.fixed(&7_i32.to_le_bytes());
    list.null();
    let mut value = Vec::new();
    list.finish(&mut value).unwrap();
    let records: &[(&[u8], &[u8])] = &[(b"k", &value), (b"l", b"")];
    let lists = ExportValues::Lists {
        item: &item,
        length: None,
    };
    let made = (Some("{id}"), "tags");
    let json = write(lists, made, ExportFormat::JsonLines, false, records);
    assert_eq!(
        text(json),
        "{\"key\":\"k\",\"value\":[7,null]}\n{\"key\":\"l\",\"value\":[]}\n"
    );
    let parquet = write(lists, made, ExportFormat::Parquet, false, records);
    assert_eq!(read_back("a.parquet", &parquet.unwrap())[0].num_rows(), 2);
}

#[test]
fn rows_have_keys_of_their_own_where_no_template_makes_them() {
    let schema = Schema::new(vec![Column::new("key", Kind::Int32, true)]);
    let rows = ExportValues::Rows(&schema);
    let csv = |key, value| write(rows, (key, ""), ExportFormat::Csv, false, &[(b"k", value)]);
    assert_eq!(text(csv(Some("{key}"), &[1, 0, 0, 0, 0])), "key\n0\n");
    assert_eq!(
        text(csv(Some("{gone}"), &[1, 0, 0, 0, 0])),
        "_key,key\nk,0\n"
    );
    // A live table may have a column of that name, which is not the key.
    assert_eq!(text(csv(None, &[1, 0, 0, 0, 0])), "_key,key\nk,0\n");
    let cut = csv(Some("{key}"), b"x").unwrap_err().to_string();
    assert!(cut.contains("stored value of the key 'k'"), "{cut}");
}

#[test]
fn csv_and_json_show_every_scalar() {
    let half = |value| Kind::List {
        item: Box::new(Column::new("item", value, true)),
        length: None,
    };
    let schema = Schema::new(vec![
        Column::new("f", Kind::Float64, true),
        Column::new("b", Kind::Binary, true),
        Column::new("t", Kind::Text, true),
        Column::new("l", half(Kind::Float32), true),
    ]);
    let floats = Kind::Float32;
    let mut list = ListWriter::new(&floats);
    list.begin();
    for value in [f32::NAN, f32::INFINITY, -0.0] {
        list.fixed(&value.to_le_bytes());
    }
    list.null();
    let mut items = Vec::new();
    list.finish(&mut items).unwrap();
    let mut writer = RowWriter::new(&schema);
    let mut row = |set: &dyn Fn(&mut RowWriter)| {
        let mut bytes = Vec::new();
        writer.begin();
        set(&mut writer);
        writer.finish(&mut bytes).unwrap();
        bytes
    };
    let nulls = row(&|_| ());
    let odd = row(&|writer| {
        writer.fixed(0, &f64::NEG_INFINITY.to_le_bytes());
        writer.bytes(1, b"\xff");
        writer.bytes(2, b"");
        writer.bytes(3, &items);
    });
    let records: &[(&[u8], &[u8])] = &[(b"n", &nulls), (b"o", &odd)];
    let rows = ExportValues::Rows(&schema);
    assert_eq!(
        text(write(rows, (None, ""), ExportFormat::Csv, false, records)),
        concat!(
            "key,f,b,t,l\nn,,,,\n",
            r#"o,-Infinity,"{""base64"":""/w==""}","","[""NaN"",""Infinity"",-0.0,null]""#,
            "\n"
        )
    );
    assert_eq!(
        text(write(
            rows,
            (None, ""),
            ExportFormat::JsonLines,
            false,
            records
        )),
        concat!(
            r#"{"key":"n","f":null,"b":null,"t":null,"l":null}"#,
            "\n",
            r#"{"key":"o","f":"-Infinity","b":{"base64":"/w=="},"t":"","l":["NaN","Infinity",-0.0,null]}"#,
            "\n"
        )
    );
}
