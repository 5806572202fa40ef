//! Notifies nodes of a change in the store.
//!
//! A notification is a hint: nodes poll by themselves, and find the change a little later if it
//! does not reach them.

use std::time::Duration;

use futures::future::join_all;
use tracing::debug;

use crate::objects::Objects;
use crate::tables_document::TablesDocument;

/// The time for all of them together.
const WITHIN: Duration = Duration::from_millis(500);

/// Notifies the nodes that a document names, except the one of that address.
pub fn notify_nodes(objects: &Objects, document: &TablesDocument, but: Option<&str>) {
    let others = document.nodes.iter();
    let others = others.filter(|(address, _)| Some(address.as_str()) != but);
    let urls: Vec<String> = others
        .map(|(address, node)| {
            let scheme = if node.tls { "https" } else { "http" };
            let stamp = document.stamp;
            format!("{scheme}://{address}/v1/pulls/notify?document={stamp}")
        })
        .collect();
    if urls.is_empty() {
        return;
    }
    // A hint reveals nothing, so any server may receive it.
    let client = reqwest::Client::builder()
        .timeout(WITHIN)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .tls_danger_accept_invalid_certs(true)
        .build();
    let client = match client {
        Ok(client) => client,
        Err(error) => return debug!(%error, "no client to notify nodes with"),
    };
    objects.runtime().block_on(async {
        let client = &client;
        let reported = urls.iter().map(|url| async move {
            if let Err(error) = client.get(url).send().await {
                debug!(url, %error, "a node was not notified");
            }
        });
        join_all(reported).await;
    });
}
