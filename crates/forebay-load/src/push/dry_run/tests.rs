//! Tests of dry runs of sources that are large, or of unknown size.

use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
use arrow_schema::ArrowError;
use forebay_io::{OsDisk, SystemClock, SystemRandom};

use super::*;
use crate::gate::Finding;
use crate::progress::Silent;
use crate::push::push;
use crate::push::tests::request;
use crate::sources::{Batches, Input};

/// Returns this many rows of an id and a number, in batches, from a reader that does or does not
/// know their number.
fn rows(count: i64, times: i64, is_counted: bool) -> Input {
    let batch = move |start: i64| -> Result<RecordBatch, ArrowError> {
        let ids: Int64Array = (start..count.min(start + 10_000)).collect();
        let numbers: Int64Array = ids.iter().flatten().map(|id| id * times).collect();
        let columns = [("id", ids), ("n", numbers)];
        let columns = columns.map(|(name, array)| (name, Arc::new(array) as ArrayRef));
        RecordBatch::try_from_iter(columns)
    };
    let schema = batch(0).unwrap().schema();
    let batches = (0..count).step_by(10_000).map(batch);
    let reader = RecordBatchIterator::new(batches.collect::<Vec<_>>(), schema);
    let rows = is_counted.then_some(count as u64);
    Input::Batches(Batches::new("memory", rows, reader))
}

fn of(input: Input) -> PushRequest {
    PushRequest {
        sources: input,
        ..request(Path::new(""), "{id}")
    }
}

fn store(dir: &Path) -> Store {
    let disk = Arc::new(OsDisk::default());
    let clock = Arc::new(SystemClock);
    let random = Arc::new(SystemRandom);
    Store::open_or_create(disk, clock, random, &dir.join("store")).unwrap()
}

fn tried(request: &PushRequest, store: Option<&Store>, extent: Extent) -> Forecast {
    let disk = OsDisk::default();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ground = DryRunContext {
        store,
        disk: &disk,
        clock: &clock,
        random: &SystemRandom,
        room_at: None,
        look_ups: 20_000,
    };
    dry_run(request, ground, extent, &Silent).unwrap()
}

fn seen<'f>(findings: &'f [Finding], limit: &str) -> Option<&'f str> {
    let found = findings.iter().find(|finding| finding.limit == limit);
    found.map(|finding| &*finding.seen)
}

#[test]
fn the_rows_of_a_reader_of_unknown_length_are_not_guessed() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    push(&of(rows(1000, 1, false)), &store, &Silent).unwrap();
    let mut request = of(rows(150_000, 1, false));
    // Its numbers grow with the rows.
    request.limits = ["shift<100000%", "std<100000%"]
        .map(|limit| limit.parse().unwrap())
        .into();
    let sampled = tried(&request, Some(&store), Extent::Sample);
    assert!((100_000..150_000).contains(&sampled.rows_read) && !sampled.is_all);
    assert_eq!((sampled.rows_between, sampled.bytes), (None, None));
    assert_eq!(
        (sampled.room.needed_bytes, sampled.push_seconds),
        (None, None)
    );
    assert_eq!(sampled.outlook, ExpectedEnd::Swap);
    for limit in ["rows>-20%", "bytes>-30%", "lost<20%"] {
        assert_eq!(seen(&sampled.gate, limit), None);
    }
    // A reader of unknown length that is read to its end has known rows.
    let whole = tried(&of(rows(150_000, 1, false)), Some(&store), Extent::All);
    assert_eq!(whole.rows_between, Some((150_000, 150_000)));
    assert!(whole.is_exact && whole.push_seconds.is_some());
    assert_eq!(
        seen(&whole.gate, "rows>-20%"),
        Some("rows 1000 to 150000 (+14900%)")
    );
    let lost = "0% of the serving version's keys are gone (1000 looked at)";
    assert_eq!(seen(&whole.gate, "lost<20%"), Some(lost));
}

#[test]
fn the_keys_of_a_sample_stand_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    push(&of(rows(200_000, 1, true)), &store, &Silent).unwrap();
    let limits = ["changed<50%", "new<50%"].map(|limit| limit.parse().unwrap());
    let half = PushRequest {
        limits: limits.to_vec(),
        ..of(rows(120_000, 2, true))
    };
    let sampled = tried(&half, Some(&store), Extent::Sample);
    assert_eq!(sampled.outlook, ExpectedEnd::Hold);
    assert_eq!(sampled.rows_between, Some((120_000, 120_000)));
    let rows = Some("rows, estimated, 200000 to 120000 (-40%)");
    assert_eq!(seen(&sampled.gate, "rows>-20%"), rows);
    let lost = seen(&sampled.gate, "lost<20%").unwrap();
    assert!(lost.starts_with("40% of"), "{lost}");
    // All values but that of 0 changed, and no key is new.
    let changed = seen(&sampled.gate, "changed<50%").unwrap();
    assert!(
        changed.starts_with("100% of") || changed.starts_with("99.9"),
        "{changed}"
    );
    assert!(seen(&sampled.gate, "new<50%").unwrap().starts_with("0% of"));
}

#[test]
fn a_push_that_is_slowed_down_takes_its_time() {
    let request = PushRequest {
        rate_bytes: Some(1000),
        ..of(rows(10_000, 1, true))
    };
    let forecast = tried(&request, None, Extent::Sample);
    let bytes = forecast.bytes.unwrap() as f64;
    assert!(forecast.push_seconds.unwrap() >= 2.0 * bytes / 1000.0);
    assert_eq!(
        (forecast.manifest.version, forecast.compared_with),
        (1, None)
    );
}

#[test]
fn more_keys_than_memory_are_not_counted() {
    let request = PushRequest {
        memory_bytes: 64 * 100,
        ..of(rows(1000, 1, true))
    };
    let forecast = tried(&request, None, Extent::All);
    assert!(forecast.is_all && !forecast.is_exact);
    assert_eq!(forecast.rows_between, Some((1000, 1000)));
}
