//! The contents of live tables for the price of a plan, by their leaders' reports.

use std::collections::BTreeMap;

use forebay_engine::live::PartitionSize;
use forebay_engine::{Bound, Bounds, PartitionId};
use forebay_run::content::ContentSum;
use forebay_run::hash::SLOTS;

use super::Summaries;
use crate::model::{GroupEntry, Model, MoveBatch, Survey, SurveyedPartition};
use crate::routing::version::{PartitionSummary, VersionSummary};

/// Returns the live tables with a report, with their partitions after the splits of the batches.
pub fn surveyed(model: &Model, survey: &Survey, batches: &[MoveBatch]) -> Summaries {
    let mut summaries = Summaries::new();
    for (table, entry) in model.live_tables() {
        let (Some(sizes), Some(groups)) = (survey.get(table), model.groups.get(table)) else {
            continue;
        };
        let splits = batches.iter().flat_map(|batch| &batch.splits);
        let splits = splits.filter(|split| split.table == *table);
        let mut split_points: Vec<&Bound> = splits.map(|split| &split.at).collect();
        split_points.sort();
        let partitions = groups
            .all()
            .flat_map(|group| pieces(group, sizes, &split_points));
        let summary = VersionSummary {
            order: entry.order,
            partitions: partitions.collect(),
        };
        summaries.insert(table.clone(), summary);
    }
    summaries
}

/// Returns a partition, or its pieces after the splits.
fn pieces(
    group: &GroupEntry,
    reported: &BTreeMap<PartitionId, SurveyedPartition>,
    split_points: &[&Bound],
) -> Vec<PartitionSummary> {
    let unknown = PartitionSize::default();
    let size = reported
        .get(&group.partition)
        .map_or(&unknown, |reported| &reported.size);
    let first = split_points.partition_point(|at| **at <= group.bounds.lower);
    let inner = split_points[first..].iter();
    let inner = inner.take_while(|at| group.bounds.holds(at));
    let mut lowers = vec![&group.bounds.lower];
    lowers.extend(inner.copied());
    let uppers = lowers.iter().skip(1).map(|upper| Some(*upper));
    let uppers: Vec<Option<&Bound>> = uppers.chain([group.bounds.upper.as_ref()]).collect();
    let piece = |(lower, upper): (&&Bound, Option<&Bound>)| {
        let below = |bound| share_below(&group.bounds, &size.split_points, bound);
        let share = upper.map_or(1.0, below) - below(lower);
        let part = |all: u64| (all as f64 * share.max(0.0)) as u64;
        PartitionSummary {
            bounds: Bounds {
                lower: (*lower).clone(),
                upper: upper.cloned(),
            },
            rows: part(size.records),
            content: ContentSum::default(),
            file_bytes: part(size.bytes),
        }
    };
    lowers.iter().zip(uppers).map(piece).collect()
}

/// Returns the approximate share of a partition's data that is below a bound in it.
pub fn share_below(bounds: &Bounds, split_points: &[Bound], at: &Bound) -> f64 {
    if *at <= bounds.lower {
        return 0.0;
    }
    if bounds.upper.as_ref().is_some_and(|upper| upper <= at) {
        return 1.0;
    }
    if let (Bound::Slot(at), Bound::Slot(lower)) = (at, &bounds.lower) {
        let upper = match bounds.upper {
            Some(Bound::Slot(upper)) => u32::from(upper),
            _ => SLOTS,
        };
        let width = f64::from(upper) - f64::from(*lower);
        return f64::from(at - lower) / width;
    }
    // Between two split points nothing is known, so half of the data there counts.
    let below = split_points.iter().filter(|point| *point < at).count();
    let is_split_point = split_points.get(below) == Some(at);
    let parts = below as f64 + if is_split_point { 1.0 } else { 0.5 };
    parts / (split_points.len() + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Bound {
        Bound::Key(text.as_bytes().to_vec())
    }

    #[test]
    fn shares_follow_split_points_and_slots() {
        let bounds = Bounds {
            lower: key("b"),
            upper: Some(key("y")),
        };
        let split_points = [key("d"), key("m"), key("r")];
        for (at, share) in [
            ("a", 0.0),
            ("b", 0.0),
            ("c", 0.125),
            ("d", 0.25),
            ("n", 0.625),
            ("x", 0.875),
            ("y", 1.0),
        ] {
            assert_eq!(share_below(&bounds, &split_points, &key(at)), share, "{at}");
        }
        let slots = Bounds {
            lower: Bound::Slot(8192),
            upper: None,
        };
        assert_eq!(share_below(&slots, &[], &Bound::Slot(12288)), 0.5);
        assert_eq!(share_below(&slots, &[], &Bound::Slot(8192)), 0.0);
    }
}
