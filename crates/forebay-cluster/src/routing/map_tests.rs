use forebay_engine::live::LiveDraft;

use super::*;
use crate::model::{EndedLoad, LiveEntry, NodeState, RangeEntry, Replication, TableEntry};

fn node(id: u32, zone: &str, ports: &[u16]) -> NodeEntry {
    let address = |port| HostPort::new(&format!("10.0.0.{id}"), port);
    NodeEntry {
        id: NodeId(id),
        name: NodeName::new(&format!("n{id}")).unwrap(),
        zone: Zone::new(zone).unwrap(),
        incarnation: 1,
        state: NodeState::Up,
        paused_until_unix_ms: None,
        listen: address(7379),
        class_ports: ports.to_vec(),
        peer: address(7400),
        http: None,
        cut_off_ms: None,
        formats: [1, 1],
        program: String::new(),
        key: None,
    }
}

fn range(lower: Bound, list: &[u32]) -> RangeEntry {
    RangeEntry::new(lower, list.iter().copied().map(NodeId).collect())
}

fn model() -> Model {
    let mut model = Model::default();
    for (id, zone) in [(1, "a"), (2, "b"), (3, "a")] {
        model.put_node(node(id, zone, &[7381, 7382]));
    }
    let main = vec![
        range(Bound::Slot(0), &[1, 2]),
        range(Bound::Slot(4096), &[2, 3]),
        range(Bound::Slot(9000), &[3, 1]),
    ];
    let main = Layout::new(Order::Hashed, main);
    model.layouts.insert(LayoutName::Main, main);
    let words = TableName::new("words").unwrap();
    let ordered = vec![
        range(Bound::Key(Vec::new()), &[2, 1]),
        range(Bound::Key(b"m".to_vec()), &[3, 2]),
    ];
    let name = LayoutName::Table(words.clone());
    let layout = Layout::new(Order::Ordered, ordered);
    model.layouts.insert(name.clone(), layout);
    let entry = |order, layout, replicas| TableEntry {
        serving: Some(1),
        ..TableEntry::new(order, layout, replicas)
    };
    model.put_table(&words, entry(Order::Ordered, name, 2));
    let flights = TableName::new("flights").unwrap();
    model.put_table(&flights, entry(Order::Hashed, LayoutName::Main, 1));
    model
}

fn map(suspects: &[u32]) -> ClusterMap {
    map_of(&model(), suspects)
}

fn map_of(model: &Model, suspects: &[u32]) -> ClusterMap {
    let suspects = suspects.iter().copied().map(NodeId).collect();
    ClusterMap::new(ClusterId(7), 5, NodeId(1), model, &suspects)
}

#[test]
fn a_place_is_routed_to_its_list_up_to_the_replica_count() {
    let map = map(&[]);
    let table = |name: &str| map.table(&TableName::new(name).unwrap()).unwrap().clone();
    assert_eq!(table("flights").of_slot(4095), [NodeId(1)]);
    assert_eq!(table("flights").of_slot(4096), [NodeId(2)]);
    assert_eq!(table("flights").of_slot(16383), [NodeId(3)]);
    assert_eq!(table("words").of_key(b"lz"), [NodeId(2), NodeId(1)]);
    assert_eq!(table("words").of_key(b"m"), [NodeId(3), NodeId(2)]);
    assert_eq!(table("words").of_key(b""), [NodeId(2), NodeId(1)]);
}

#[test]
fn each_class_has_its_own_port() {
    let map = map(&[]);
    let seen: Vec<(u16, u16, String)> = map
        .classes()
        .iter()
        .map(|class| (class.first, class.last, class.primary.to_string()))
        .collect();
    assert_eq!(
        seen,
        [
            (0, 4095, "10.0.0.1:7381".to_owned()),
            (4096, 8999, "10.0.0.2:7381".to_owned()),
            (9000, 16383, "10.0.0.3:7381".to_owned()),
        ]
    );
    assert_eq!(map.class_of(8999).unwrap().first, 4096);
}

#[test]
fn a_suspected_node_is_the_primary_of_no_class() {
    let map = map(&[2]);
    let class = map.class_of(5000).unwrap();
    assert_eq!(class.nodes, [NodeId(3)]);
    // Its own class keeps the first port.
    assert_eq!(class.primary.to_string(), "10.0.0.3:7382");
    let words = map.table(&TableName::new("words").unwrap()).unwrap();
    let asked = map.to_ask(words.of_key(b"z"));
    let asked: Vec<u32> = asked.iter().map(|node| node.id.0).collect();
    assert_eq!(asked, [3, 2], "available nodes and nodes of the zone first");
    // This node does not suspect itself.
    let all: Vec<bool> = self::map(&[1, 2, 3])
        .nodes()
        .map(|node| node.is_available)
        .collect();
    assert_eq!(all, [true, false, false]);
}

#[test]
fn with_live_tables_an_isolated_node_names_the_nodes_of_other_classes() {
    let mut model = model();
    let mut carts = TableEntry::new(Order::Hashed, LayoutName::Main, 3);
    carts.live = Some(Box::new(LiveEntry {
        options: LiveDraft::hashed().options,
        replication: Replication::Leader,
        last_load: EndedLoad::default(),
    }));
    model.put_table(&TableName::new("carts").unwrap(), carts);
    let away = |model: &Model, suspects: &[u32]| -> Vec<Vec<NodeId>> {
        let map = map_of(model, suspects);
        let classes = map.classes().iter();
        classes.map(|class| class.away.clone()).collect()
    };
    // No node is available for the class that this node does not hold: it names all nodes of the
    // class.
    let others = [vec![NodeId(2)], vec![], vec![NodeId(3)]];
    assert_eq!(away(&model, &[2, 3]), others);
    assert_eq!(away(&model, &[2]), [vec![], vec![], vec![]]);
    assert_eq!(away(&self::model(), &[2, 3]), [vec![], vec![], vec![]]);
}

/// Returns a model in which `flights` has its own layout, with its first slots on all nodes.
fn with_own_layout() -> Model {
    let mut model = model();
    let flights = TableName::new("flights").unwrap();
    model.give_own_layout(&flights);
    let entry = model.table(&flights).unwrap();
    assert!(entry.by_range && entry.layout == LayoutName::Table(flights));
    let own = vec![
        range(Bound::Slot(0), &[2, 3, 1]),
        range(Bound::Slot(2000), &[1, 3]),
        range(Bound::Slot(9000), &[3]),
    ];
    let own = Layout::new(Order::Hashed, own);
    model.layouts.insert(entry.layout.clone(), own);
    model
}

#[test]
fn a_table_that_gets_its_own_layout_keeps_its_nodes() {
    let (before, mut after) = (model(), model());
    let flights = TableName::new("flights").unwrap();
    after.give_own_layout(&flights);
    after.give_own_layout(&flights);
    let [before, after] = [map_of(&before, &[]), map_of(&after, &[])];
    for slot in [0, 4095, 4096, 9000, 16383] {
        let of = |map: &ClusterMap| map.table(&flights).unwrap().of_slot(slot).to_vec();
        assert_eq!(of(&before), of(&after));
    }
    let primaries = |map: &ClusterMap| -> Vec<HostPort> {
        let classes = map.classes().iter();
        classes.map(|class| class.primary.clone()).collect()
    };
    assert_eq!(primaries(&before), primaries(&after));
}

#[test]
fn whole_lists_hold_a_table_with_its_own_layout() {
    let model = with_own_layout();
    let map = map_of(&model, &[]);
    let flights = TableName::new("flights").unwrap();
    let table = map.table(&flights).unwrap();
    assert!(table.has_own_slots());
    assert_eq!(table.of_slot(1999).len(), 3);
    assert_eq!(table.of_slot(16383), [NodeId(3)]);
    // Nodes without any of it ask different nodes.
    let mut wide = model.clone();
    for id in 4..10 {
        wide.put_node(node(id, "b", &[]));
    }
    let first = |me: u32| {
        let none = BTreeSet::new();
        let map = ClusterMap::new(ClusterId(7), 5, NodeId(me), &wide, &none);
        map.table(&flights).unwrap().of_slot(0)[0].0
    };
    assert_eq!((4..10).map(first).collect::<Vec<_>>(), [2, 3, 1, 2, 3, 1]);
}

#[test]
fn a_client_bound_to_a_table_sees_only_its_layout() {
    let map = map_of(&with_own_layout(), &[3]);
    assert_eq!(map.classes().len(), 3, "the main layout");
    assert!(!map.is_own && map.own(&TableName::new("words").unwrap()).is_none());
    let own = map.own(&TableName::new("flights").unwrap()).unwrap();
    let seen: Vec<(u16, u16, String, usize)> = own
        .classes()
        .iter()
        .map(|class| {
            let primary = class.primary.to_string();
            (class.first, class.last, primary, class.nodes.len())
        })
        .collect();
    assert_eq!(
        seen,
        [
            (0, 1999, "10.0.0.2:7379".to_owned(), 2),
            (2000, 8999, "10.0.0.1:7379".to_owned(), 1),
            (9000, 16383, "10.0.0.3:7379".to_owned(), 1),
        ]
    );
    assert!(own.is_own && own.revision == map.revision);
}
