//! Makes versions and reports comparable: removes the estimates that differ between tasks.

use forebay_engine::ColumnStats;

use crate::push::PushReport;

/// Removes estimates from randomly drawn rows, because tasks draw other rows.
pub fn counted(mut stats: Vec<ColumnStats>) -> Vec<ColumnStats> {
    for values in stats.iter_mut().filter_map(|stats| stats.values.as_mut()) {
        assert!(values.looked_at > 0 || values.values == 0, "{values:?}");
        (values.looked_at, values.common, values.distinct) = (0, None, None);
        if let Some(range) = &mut values.range {
            range.quantiles = [0.0; 21];
        }
    }
    stats
}

/// Returns the report of a local push with the estimates of `distributed`.
pub fn alike(local: PushReport, distributed: &PushReport) -> PushReport {
    let stats = distributed.stats.clone();
    assert_eq!(counted(local.stats), counted(stats.clone()));
    PushReport { stats, ..local }
}
