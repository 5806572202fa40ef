//! The file beside a table that names the peers of its partitions on this node.
//!
//! A peer exists once the file names it. The node writes the file after it has created partition
//! and log, and before it removes them. A partition that the file does not name is the remainder of
//! a peer.

use std::io;
use std::path::{Path, PathBuf};

use forebay_engine::{PartitionId, Store, TableName, seal, unseal};
use forebay_io::{Disk, replace_file};
use forebay_replica::{GroupId, PeerId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::routing::live::ReplicaOrder;

const FORMAT: u64 = 1;

/// A peer whose partition and log are on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPeer {
    pub partition: PartitionId,
    pub group: GroupId,
    pub peer: PeerId,
}

/// A group whose peer resulted, or began to result, from the split of a partition on this node. The
/// record stays as long as the table does: no such peer is created twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedChild {
    pub group: GroupId,
    /// The first catalog revision that names the group's peers. If an older catalog does not order
    /// the peer, that means nothing.
    pub planned_in: u64,
}

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeersFile {
    forebay_replicas: u64,
    pub peers: Vec<SavedPeer>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    children: Vec<SavedChild>,
}

/// The content of the file as it is on the disk.
#[derive(Debug)]
pub struct SavedPeers {
    store: Store,
    table: TableName,
    note: Mutex<PeersFile>,
}

impl SavedPeers {
    /// REQUIRES: the note was read from the disk, except for peers that no longer exist.
    pub fn new(store: Store, table: TableName, note: PeersFile) -> Self {
        Self {
            store,
            table,
            note: Mutex::new(note),
        }
    }

    pub fn get(&self) -> PeersFile {
        self.note.lock().clone()
    }

    pub fn has(&self, order: &ReplicaOrder) -> bool {
        self.note.lock().has(order)
    }

    /// Changes the note and writes the file.
    pub fn change(&self, change: impl FnOnce(&PeersFile) -> PeersFile) -> io::Result<()> {
        let mut note = self.note.lock();
        let next = change(&note);
        next.write(&self.store, &self.table)?;
        *note = next;
        Ok(())
    }
}

/// Returns the directory of the log of a table's replicas.
pub fn log_dir(store: &Store, table: &TableName) -> PathBuf {
    table_dir(store, table).join("replicas")
}

fn table_dir(store: &Store, table: &TableName) -> PathBuf {
    store.root().join("tables").join(table.as_str())
}

fn note_path(store: &Store, table: &TableName) -> PathBuf {
    table_dir(store, table).join("replicas.json")
}

impl Default for PeersFile {
    fn default() -> Self {
        Self {
            forebay_replicas: FORMAT,
            peers: Vec::new(),
            children: Vec::new(),
        }
    }
}

impl SavedPeer {
    pub fn of(order: &ReplicaOrder) -> Self {
        Self {
            partition: order.partition,
            group: order.group,
            peer: order.peer,
        }
    }

    /// Returns the peer whose state the ordered one continues.
    pub fn inherited(order: &ReplicaOrder) -> Option<Self> {
        let inherited = order.inherits.filter(|_| order.is_new)?;
        Some(Self {
            partition: order.partition,
            group: inherited.group,
            peer: inherited.peer,
        })
    }
}

impl PeersFile {
    /// Reads the file. A missing or damaged file means that there are no peers: without it, no
    /// partition is known to belong to a peer.
    pub fn read(store: &Store, table: &TableName) -> io::Result<Self> {
        let path = note_path(store, table);
        let bytes = match store.disk().read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            bytes => bytes?,
        };
        match unseal(&bytes, "forebay_replicas", FORMAT) {
            Ok((note, _)) => Ok(note),
            Err(error) => {
                let path = path.display();
                warn!(%path, %error, "this node starts without its earlier replicas");
                Ok(Self::default())
            }
        }
    }

    fn write(&self, store: &Store, table: &TableName) -> io::Result<()> {
        let (bytes, _) = seal(self).map_err(io::Error::other)?;
        replace_file(&**store.disk(), &note_path(store, table), &bytes)
    }

    /// Removes the file durably.
    pub fn remove(store: &Store, table: &TableName) -> io::Result<()> {
        let path = note_path(store, table);
        remove_file(&**store.disk(), &path)
    }

    pub fn has(&self, order: &ReplicaOrder) -> bool {
        self.peers.contains(&SavedPeer::of(order))
    }

    /// Returns whether this node has the peer whose state the ordered one continues.
    pub fn has_inherited(&self, order: &ReplicaOrder) -> bool {
        SavedPeer::inherited(order).is_some_and(|old| self.peers.contains(&old))
    }

    pub fn with(&self, peer: SavedPeer) -> Self {
        debug_assert!(
            !self.peers.contains(&peer),
            "{peer:?} is noted, and would be twice"
        );
        let mut note = self.clone();
        note.peers.push(peer);
        note
    }

    pub fn without(&self, peer: SavedPeer) -> Self {
        let mut note = self.clone();
        note.peers.retain(|other| *other != peer);
        note
    }

    pub fn with_child(&self, child: SavedChild) -> Self {
        let mut note = self.clone();
        note.children.retain(|known| known.group != child.group);
        note.children.push(child);
        note
    }

    /// Returns whether the ordered peer never existed on this node. Its parent peer must still
    /// exist, and remember whether it was split.
    pub fn never_had(&self, order: &ReplicaOrder) -> bool {
        let is_left = |(group, peer): (GroupId, PeerId)| {
            let mut peers = self.peers.iter();
            peers.any(|known| (known.group, known.peer) == (group, peer))
        };
        let mut children = self.children.iter();
        order.comes_from.is_some_and(is_left) && !children.any(|child| child.group == order.group)
    }

    /// Returns whether a catalog of this revision may not know the peer yet.
    pub fn is_ahead(&self, peer: SavedPeer, revision: u64) -> bool {
        let is_its = |child: &SavedChild| child.group == peer.group && child.planned_in > revision;
        self.children.iter().any(is_its)
    }
}

fn remove_file(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => {
            removed?;
            path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir))
        }
    }
}
