//! Sorts the sample and writes it as runs in memory, to measure file sizes and time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_io::{Clock, Disk, MemoryDisk};
use forebay_run::operation::Operation;
use forebay_run::record::decode;

use super::reservoir::SampledRow;
use crate::progress::Silent;
use crate::push::layer::Layer;
use crate::push::{PushRequest, partitions, sort_plan};
use crate::sort::{
    AsTheyAre, Boundaries, Collector, Duplicates, Finish, SortError, SortPlan, SortSpace, Tally,
    write_partitions,
};

/// The result of writing the sample.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// Bytes of the input's keys and values, and of the resulting files.
    pub payload_bytes: u64,
    pub file_bytes: u64,
    pub records: u64,
    pub took: Duration,
    /// The number of partitions of the whole version.
    pub partitions: usize,
}

/// Writes the sample. `whole` is the expected content of the version; `boundaries` are the
/// partitions, if they are settled.
pub fn write(
    request: &PushRequest,
    layer: Option<&Layer>,
    sample: &[SampledRow],
    whole: &Tally,
    boundaries: Option<Boundaries>,
    clock: &dyn Clock,
) -> Result<Trial, SortError> {
    let started = clock.monotonic();
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let space = SortSpace {
        disk,
        scratch: PathBuf::new(),
        memory_bytes: u64::MAX,
        threads: 1,
    };
    let mut plan = sort_plan(request, space, layer);
    // Duplicate keys are found elsewhere, among all rows.
    if plan.duplicates == Duplicates::Fail {
        plan.duplicates = Duplicates::First;
    }
    plan.settle_pages(whole);
    let collected = [collect(&plan, sample)?];
    let boundaries =
        boundaries.unwrap_or_else(|| partitions::boundaries(request, &collected, whole.bytes));
    // One run: many small runs would consist mostly of their heads.
    let all = match layer {
        Some(layer) => layer.boundaries(),
        None => partitions::whole(plan.order()),
    };
    let as_they_are = AsTheyAre { filters: false };
    let finish: &dyn Finish = match layer {
        Some(layer) => layer,
        None => &as_they_are,
    };
    let path_of = |partition: usize| PathBuf::from(format!("{partition}.run"));
    let pace = |_| ();
    let built = write_partitions(&plan, &all, &collected, finish, &path_of, &pace, &Silent)?;
    let sum = |of: fn(&forebay_run::RunSummary) -> u64| built.iter().map(|b| of(&b.summary)).sum();
    Ok(Trial {
        payload_bytes: collected[0].seen.bytes,
        file_bytes: sum(|run| run.file_bytes + run.ext_bytes),
        records: collected[0].seen.records,
        took: clock.monotonic().saturating_sub(started),
        partitions: boundaries.len(),
    })
}

fn collect(
    plan: &SortPlan,
    sample: &[SampledRow],
) -> Result<crate::sort::CollectedRecords, SortError> {
    let mut collector = Collector::new(plan);
    collector.start_unit(0);
    for row in sample {
        // The drawn rows were encoded by this program, so they decode.
        let operation = decode(row.tag, &row.payload).unwrap_or(Operation::Delete);
        match operation {
            Operation::Update(value) if !plan.with_operations => collector.push(&row.key, value)?,
            operation => collector.push_operation(&row.key, operation)?,
        }
    }
    collector.finish()
}
