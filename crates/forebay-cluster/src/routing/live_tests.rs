use forebay_engine::Bound;
use forebay_engine::live::LiveDraft;
use forebay_run::Order;

use super::*;
use crate::model::{
    EndedLoad, Layout, LayoutName, LiveEntry, PeerEntry, RangeEntry, Replication, TableEntry,
    TableGroups,
};

fn nodes(ids: &[u32]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

/// A table of two partitions. The second is being moved from node 3 to node 4.
fn model() -> Model {
    let table = TableName::new("carts").unwrap();
    let mut model = Model::default();
    let mut entry = TableEntry::new(Order::Hashed, LayoutName::Table(table.clone()), 3);
    entry.live = Some(Box::new(LiveEntry {
        options: LiveDraft::hashed().options,
        replication: Replication::Leader,
        last_load: EndedLoad::default(),
    }));
    let ranges = vec![
        RangeEntry::new(Bound::Slot(0), nodes(&[1, 2, 3])),
        RangeEntry {
            next: Some(nodes(&[4, 1, 2])),
            ..RangeEntry::new(Bound::Slot(100), nodes(&[3, 1, 2]))
        },
    ];
    let layout = Layout::new(Order::Hashed, ranges);
    model.layouts.insert(entry.layout.clone(), layout);
    model.put_table(&table, entry);
    let bounds = |lower, upper| Bounds {
        lower: Bound::Slot(lower),
        upper,
    };
    let first = GroupEntry::founded(
        GroupId(7),
        PartitionId(0),
        bounds(0, Some(Bound::Slot(100))),
        &nodes(&[1, 2, 3]),
        0,
    );
    let mut second = GroupEntry::founded(
        GroupId(8),
        PartitionId(1),
        bounds(100, None),
        &nodes(&[3, 1, 2]),
        0,
    );
    second.peers[0].state = PeerState::Leaving;
    second.peers[1].state = PeerState::Made;
    second.peers[2].state = PeerState::Lost;
    second.add_peer(NodeId(4), 0);
    second.add_peer(NodeId(2), 0);
    model
        .groups
        .insert(table, TableGroups::new(&[first, second]));
    model
}

#[test]
fn orders_name_a_nodes_replicas_and_the_wanted_peers() {
    let model = model();
    let of = |node| orders(&model, NodeId(node));
    let two = of(2);
    let places: Vec<_> = two
        .iter()
        .map(|order| (order.group.0, order.peer.0))
        .collect();
    assert_eq!(places, [(7, 2), (8, 5)], "the lost peer is not ordered");
    assert_eq!(two[0].founders, Some(vec![PeerId(1), PeerId(2), PeerId(3)]));
    assert!(two[0].is_new && two[1].is_new);
    assert_eq!(two[1].founders, None, "the peer joins");
    let leaving = &of(3)[1];
    assert!(!leaving.is_new, "it runs until its group has replaced it");
    let wanted: Vec<_> = leaving.wanted.peers.iter().collect();
    let ready: Vec<_> = wanted
        .iter()
        .map(|peer| (peer.peer.0, peer.is_ready))
        .collect();
    assert_eq!(
        ready,
        [(4, false), (2, true), (5, false)],
        "in the order of the list"
    );
    assert_eq!(
        (leaving.wanted.replicas, leaving.wanted.next_peer),
        (3, PeerId(6))
    );
    assert_eq!(leaving.peers.len(), 4, "no peer sends to the lost one");
    assert_eq!(of(4).len(), 1);
    assert!(of(9).is_empty());
}

#[test]
fn requests_go_to_the_last_known_leader_first() {
    let model = model();
    let leaders = BTreeMap::from([(GroupId(7), NodeId(3))]);
    let routes = live_routes(&model, &leaders);
    let [first, second] = &routes.values().next().unwrap()[..] else {
        panic!("{routes:?}");
    };
    assert_eq!(first.nodes, nodes(&[3, 1, 2]));
    assert_eq!(second.nodes, nodes(&[4, 1, 2, 3]));
    assert_eq!(
        (second.group, second.partition),
        (GroupId(8), PartitionId(1))
    );
}

#[test]
fn a_moving_range_is_wanted_on_its_new_nodes() {
    let model = model();
    let (name, _) = model.live_tables().next().unwrap();
    let wanted: Vec<_> = model.desired_groups(name);
    assert_eq!(wanted[0].1, nodes(&[1, 2, 3]));
    assert_eq!(wanted[1].1, nodes(&[4, 1, 2]));
    assert!(
        model
            .desired_groups(&TableName::new("none").unwrap())
            .is_empty()
    );
    let peers: Vec<&PeerEntry> = wanted[1].0.staying().collect();
    assert_eq!(peers.len(), 3);
}
