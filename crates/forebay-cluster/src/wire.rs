//! Messages between nodes as bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::message::{Beat, BeatReply};
use crate::model::{DocRef, Head};
use crate::status::Status;

/// A question of one node to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    Beat(Box<Beat>),
    /// The catalog has new requests.
    Notify,
    /// Asks for the newest head that the node knows.
    Head,
    /// Asks for these documents of the catalog, as far as the node has them.
    Documents(BTreeSet<DocRef>),
    /// Asks for the state of the cluster. The coordinator knows it; any other node answers with
    /// what it last received.
    Status,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Beat(Box<BeatReply>),
    Done,
    Head(Option<Box<Head>>),
    /// The documents, as text.
    Documents(BTreeMap<DocRef, String>),
    /// The state; `None` if this node knows nothing of its cluster yet.
    Status(Option<Box<Status>>),
}

pub fn to_bytes<T: Serialize>(message: &T) -> io::Result<Bytes> {
    Ok(serde_json::to_vec(message)
        .map_err(io::Error::other)?
        .into())
}

pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, format!("no message: {error}"));
    serde_json::from_slice(bytes).map_err(wrong)
}
