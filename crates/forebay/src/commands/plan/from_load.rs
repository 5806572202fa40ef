//! The load on a table of a cluster, as its nodes measured it, for the planners.

use forebay_cluster::model::{Model, Survey};
use forebay_cluster::planning::Summaries;
use forebay_cluster::reads::BatchReads;
use forebay_cluster::traffic::TrafficWindow;
use forebay_engine::TableName;

use crate::commands::cluster::serving_summaries;
use crate::context::Context;

/// The values of --from-load.
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
            "'{text}' is not one of 1m, 1h and 24h, the windows over which nodes measure requests"
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

/// A cluster with the known load on its tables.
pub struct MeasuredCluster {
    pub model: Model,
    pub survey: Survey,
    pub reads: BatchReads,
    /// The serving versions of batch tables, if the table is a batch table.
    pub batch: Option<Summaries>,
}

pub fn measured(table: &TableName, context: &Context) -> anyhow::Result<MeasuredCluster> {
    if !context.is_clustered()? {
        wrong!(
            "--from-load is about tables of a cluster, whose nodes measure what is asked of their partitions (--input \
             plans for what a file says)"
        );
    }
    let cluster = context.cluster()?;
    let client = cluster.client();
    let (_, model) = client.model()?;
    let Some(entry) = model.table(table) else {
        wrong!("the cluster has no table {table} (forebay cluster status lists its tables)");
    };
    let is_live = entry.live().is_some();
    let all = model.live_tables().map(|(name, _)| name.clone()).collect();
    let (model, survey) = client.survey_to_plan(&all)?;
    let batch = match is_live {
        true => None,
        false => Some(serving_summaries(&model, context)?),
    };
    Ok(MeasuredCluster {
        reads: client.reads()?,
        model,
        survey,
        batch,
    })
}
