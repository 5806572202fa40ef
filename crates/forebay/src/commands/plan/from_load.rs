//! What planners are told of the load on a table of a cluster: as its nodes measured it.

use forebay_cluster::client::ClusterPointers;
use forebay_cluster::model::{Model, Survey};
use forebay_cluster::traffic::TrafficWindow;
use forebay_engine::TableName;

use crate::context::Context;

/// The words of --from-load.
const WINDOWS: [(&str, TrafficWindow); 3] = [
    ("1m", TrafficWindow::Minute),
    ("1h", TrafficWindow::Hour),
    ("24h", TrafficWindow::Day),
];

pub fn parse_window(text: &str) -> Result<TrafficWindow, String> {
    let mut windows = WINDOWS.iter();
    let found = windows.find(|(name, _)| *name == text);
    found.map(|(_, window)| *window).ok_or_else(|| {
        format!(
            "'{text}' is none of 1m, 1h and 24h, over which nodes measure what is asked of them"
        )
    })
}

pub fn shown_window(window: TrafficWindow) -> &'static str {
    match window {
        TrafficWindow::Minute => "the last minute",
        TrafficWindow::Hour => "the last hour",
        TrafficWindow::Day => "the last 24 hours",
    }
}

/// A live table's cluster, with what is known of the load on all its live tables.
pub fn measured(table: &TableName, context: &Context) -> anyhow::Result<(Model, Survey)> {
    if !context.is_live_in_cluster(table)? {
        wrong!(
            "{table} is no live table of a cluster, and --from-load is about those: nodes measure what is asked of \
             their partitions (--input plans for what a file says)"
        );
    }
    let cluster: std::sync::Arc<ClusterPointers> = context.cluster()?;
    let (_, model) = cluster.client().model()?;
    let all = model.live_tables().map(|(name, _)| name.clone()).collect();
    Ok(cluster.client().survey_to_plan(&all)?)
}
