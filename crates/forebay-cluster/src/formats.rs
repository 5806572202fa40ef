//! Checks of what a catalog's format allows, and of which nodes support a format.

use crate::message::Introduction;
use crate::model::{
    FORMAT_OF_LIVE, FORMAT_OF_PLANS, FORMAT_OF_TIMING, FORMATS, Model, NEWEST_FORMAT, NodeEntry,
};

/// Returns why a node cannot join a cluster whose catalog has this format.
pub fn speaks_not(format: u64, who: &Introduction) -> Option<String> {
    let [oldest, newest] = who.formats;
    if (oldest..=newest).contains(&format) {
        return None;
    }
    Some(format!(
        "the cluster's catalog is of format {format}, and the program of node {}, forebay {}, speaks {oldest} to \
         {newest}: use the version of forebay that the other nodes have",
        who.name, who.program
    ))
}

/// Checks whether a catalog of this format can hold plans.
pub fn has_plans(format: u64) -> Result<(), String> {
    match format >= FORMAT_OF_PLANS {
        true => Ok(()),
        false => Err(format!(
            "the catalog is of format {format}, and plans want {FORMAT_OF_PLANS}: forebay cluster upgrade first"
        )),
    }
}

/// Checks whether a catalog of this format can hold live tables.
pub fn has_live_tables(format: u64) -> Result<(), String> {
    match format >= FORMAT_OF_LIVE {
        true => Ok(()),
        false => Err(format!(
            "the catalog is of format {format}, and live tables want {FORMAT_OF_LIVE}: forebay cluster upgrade first"
        )),
    }
}

/// Checks whether a catalog of this format can hold layouts of single tables.
pub fn has_own_layouts(format: u64) -> Result<(), String> {
    match format >= FORMAT_OF_LIVE {
        true => Ok(()),
        false => Err(format!(
            "the catalog is of format {format}, and tables that are placed by their load want {FORMAT_OF_LIVE}: forebay \
             cluster upgrade first"
        )),
    }
}

/// Checks whether a catalog of this format can hold a node timeout other than the default.
pub fn has_timing(format: u64) -> Result<(), String> {
    match format >= FORMAT_OF_TIMING {
        true => Ok(()),
        false => Err(format!(
            "the catalog is of format {format}, and a node timeout of its own wants {FORMAT_OF_TIMING}: forebay cluster \
             upgrade first"
        )),
    }
}

/// Checks whether all nodes support a format. Nodes that are down count: they may come back.
pub fn cannot_upgrade(model: &Model, format: u64) -> Result<(), String> {
    if format > NEWEST_FORMAT {
        return Err(format!(
            "the coordinator speaks formats {} to {NEWEST_FORMAT}, not {format}: give all nodes the newer program \
             first",
            FORMATS[0]
        ));
    }
    let speaks = |node: &&NodeEntry| (node.formats[0]..=node.formats[1]).contains(&format);
    let others = model.all_nodes().filter(|node| !speaks(node));
    let others: Vec<String> = others
        .map(|node| {
            let [oldest, newest] = node.formats;
            format!(
                "node {} (forebay {}, formats {oldest} to {newest})",
                node.name, node.program
            )
        })
        .collect();
    match others.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "format {format} is not spoken by {}: start a newer program there, or remove the nodes (forebay \
             cluster remove); nothing was changed",
            others.join(", ")
        )),
    }
}
