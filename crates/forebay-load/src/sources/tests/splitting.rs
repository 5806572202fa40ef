//! Tests that a text file gives the same records in any ranges.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::sources::text_files::records::{CutError, Records};
use crate::sources::text_files::split::split;
use crate::sources::text_files::splitter::Splitter;

/// The number of text after an array.
const AFTER_END: u64 = u64::MAX;

/// Returns the start of each record and its line, over the ranges of a split.
fn starts(dir: &Dir, splitter: Splitter, part_bytes: u64) -> Vec<(u64, u64)> {
    let mut found = find::find(&[dir.path("a.csv")], &SourceOptions::default()).unwrap();
    let blob = found.remove(0).blob;
    let mut starts = Vec::new();
    for (range, line) in split(&blob, 0, 1, splitter, part_bytes).unwrap() {
        let before = range.start;
        let mut records = Records::new(blob.reader(range), splitter, line);
        loop {
            let chunk = match records.next(3, 20) {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(CutError::Behind { at, .. }) => {
                    starts.push((before + at, AFTER_END));
                    break;
                }
                Err(error) => panic!("{error:?}"),
            };
            let (found, length) = (chunk.records.clone(), chunk.bytes.len() as u64);
            let at = before + records.position() - length;
            starts.extend(
                found
                    .iter()
                    .map(|record| (at + record.start as u64, record.number)),
            );
        }
    }
    starts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn ranges_hold_the_same_records(
        pieces in vec(prop_oneof![
            3 => Just("ab"), 2 => Just(","), 2 => Just("\n"), 1 => Just("\r\n"), 1 => Just("\""),
            1 => Just("\"x\ny\""), 1 => Just(",\"\"\"q\n\","), 1 => Just("\r"), 1 => Just("{\"}"), 1 => Just("}"),
            1 => Just("]"), 1 => Just("\\"),
        ], 0..120),
        part_bytes in 1_u64..60,
    ) {
        let dir = Dir::new(&[("a.csv", pieces.concat().as_bytes())]);
        for splitter in [
            Splitter::csv(b',', b'"', b'\n'),
            Splitter::csv(b',', b'"', b'\r'),
            Splitter::Lines,
            Splitter::elements(),
        ] {
            let whole = starts(&dir, splitter, 1 << 40);
            prop_assert_eq!(starts(&dir, splitter, part_bytes), whole);
        }
    }
}

#[test]
fn a_large_file_is_read_in_ranges() {
    let mut text = String::from("id,text\n");
    let mut lines = 1;
    let mut expected = 0_u64;
    while text.len() < 18 << 20 {
        let broken = expected % 1000 == 7;
        text.push_str(&format!(
            "{expected},\"{}{}\"\n",
            "some text ".repeat(60),
            if broken { "\n" } else { "" }
        ));
        expected += 1;
        lines += 1 + u64::from(broken);
    }
    let dir = Dir::new(&[("a.csv", text.as_bytes())]);
    let set = dir.open("a.csv").unwrap();
    assert!(set.units.len() > 1);
    assert_eq!(
        set.units.iter().map(SourceUnit::bytes).sum::<u64>(),
        text.len() as u64 - 8
    );
    let content = read(&set).unwrap();
    assert_eq!(content.rows.len() as u64, expected);
    assert!(
        content
            .rows
            .iter()
            .enumerate()
            .all(|(id, row)| row.starts_with(&format!("{id}|some")))
    );
    assert_eq!(content.places.last().unwrap(), &format!("line {lines}"));
}
