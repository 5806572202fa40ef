//! Tests of the rules for every layout, and of lists that get longer.

use proptest::prelude::*;

use super::super::shares::Shares;
use super::super::{Class, Line, ListNode, ListsError, extend, lay_out};
use super::{SLOTS, deviations, even, valid};

fn node(id: u32, zone: u32, weight: f64) -> ListNode {
    ListNode { id, zone, weight }
}

/// Nodes of some zones, their ids not in order, their weights up to four times another's.
pub(super) fn any_nodes(most: usize) -> impl Strategy<Value = Vec<ListNode>> {
    let one = (0u32..4, prop_oneof![Just(1.0), 1.0..4.0f64]);
    prop::collection::vec(one, 1..=most).prop_map(|nodes| {
        let node = |(index, (zone, weight))| node(u32::MAX - 7 * index, zone, weight);
        (0u32..).zip(nodes).map(node).collect()
    })
}

pub(super) fn any_line() -> impl Strategy<Value = Line> {
    prop_oneof![
        Just(SLOTS),
        (1u32..40).prop_map(Line::Uniform),
        prop::collection::vec(prop_oneof![Just(0), 1u64..1000, Just(1 << 40)], 1..60)
            .prop_map(Line::Weighed),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn layouts_keep_the_rules(
        nodes in any_nodes(14),
        line in any_line(),
        replicas in 1usize..6,
        heads in 1u32..5,
    ) {
        let classes = lay_out(&nodes, &line, replicas, heads).expect("a layout");
        valid(&classes, &nodes, &line, replicas, heads);
        let again = lay_out(&nodes, &line, replicas, heads).expect("a layout");
        prop_assert_eq!(classes, again);
    }
}

#[test]
fn even_nodes_of_one_zone_hold_and_head_the_same() {
    for (nodes, heads) in [
        (3, 1),
        (3, 2),
        (4, 4),
        (5, 1),
        (10, 2),
        (50, 1),
        (50, 2),
        (50, 4),
    ] {
        let nodes = even(nodes, 1);
        let line = Line::Uniform(16_800);
        let classes = lay_out(&nodes, &line, 3, heads).expect("a layout");
        for (above, below) in deviations(&classes, &nodes, &line, 3) {
            assert!(
                above < 1e-9 && below > -1e-9,
                "{} nodes: {above} {below}",
                nodes.len()
            );
        }
        // Half the classes that nodes may head stay available for changes.
        assert!(classes.len() <= nodes.len() * heads.div_ceil(2) as usize);
    }
}

#[test]
fn one_class_is_enough_where_there_is_one_node() {
    let classes = lay_out(&[node(7, 0, 1.0)], &SLOTS, 3, 2).expect("a layout");
    let list = vec![7];
    assert_eq!(classes, [Class { start: 0, list }]);
}

#[test]
fn a_large_node_of_a_small_cluster_is_in_every_list() {
    // Weights 1, 2 and 3 with 2 replicas: the third holds all, and heads half.
    let nodes = [node(1, 0, 1.0), node(2, 0, 2.0), node(3, 0, 3.0)];
    let classes = lay_out(&nodes, &SLOTS, 2, 2).expect("a layout");
    valid(&classes, &nodes, &SLOTS, 2, 2);
    for (above, below) in deviations(&classes, &nodes, &SLOTS, 2) {
        assert!(above < 0.01 && below > -0.01, "{above} {below}");
    }
}

#[test]
fn a_zone_of_one_node_is_in_every_list_of_two_zones() {
    let mut nodes: Vec<ListNode> = (0..5).map(|id| node(id, 0, 1.0)).collect();
    nodes.push(node(9, 1, 1.0));
    let classes = lay_out(&nodes, &SLOTS, 2, 5).expect("a layout");
    valid(&classes, &nodes, &SLOTS, 2, 5);
    assert!(classes.iter().all(|class| class.list.contains(&9)));
    for (above, below) in deviations(&classes, &nodes, &SLOTS, 2) {
        assert!(above < 0.02 && below > -0.02, "{above} {below}");
    }
}

#[test]
fn fewer_places_than_nodes_are_divided_all_the_same() {
    let nodes = even(50, 3);
    let line = Line::Weighed(vec![5, 0, 7]);
    let classes = lay_out(&nodes, &line, 3, 2).expect("a layout");
    valid(&classes, &nodes, &line, 3, 2);
}

#[test]
fn impossible_layouts_are_refused() {
    let nodes = even(3, 1);
    let refused = |nodes: &[ListNode], line: &Line, replicas, heads| {
        lay_out(nodes, line, replicas, heads).expect_err("an error")
    };
    assert_eq!(refused(&[], &SLOTS, 3, 2), ListsError::NoNodes);
    assert_eq!(refused(&nodes, &SLOTS, 0, 2), ListsError::NoReplicas);
    assert_eq!(refused(&nodes, &SLOTS, 3, 0), ListsError::NoHeads);
    assert_eq!(
        refused(&nodes, &Line::Weighed(Vec::new()), 3, 2),
        ListsError::NoPlaces
    );
    assert_eq!(refused(&nodes, &SLOTS, 65, 2), ListsError::ManyReplicas(65));
    let long = Line::Uniform(u32::MAX);
    assert_eq!(
        refused(&nodes, &long, 3, 2),
        ListsError::ManyPlaces(u32::MAX as usize)
    );
    let twice = [nodes[0], nodes[1], nodes[0]];
    assert_eq!(
        refused(&twice, &SLOTS, 3, 2),
        ListsError::Twice { index: 2, id: 0 }
    );
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = refused(&[node(1, 0, weight)], &SLOTS, 3, 2);
        assert!(
            error.to_string().starts_with("nodes[0]: the weight"),
            "{error}"
        );
    }
    // Weights that are far apart, and whose sum is not a number, are valid.
    let far = [
        node(1, 0, f64::MAX),
        node(2, 0, f64::MAX),
        node(3, 0, f64::MIN_POSITIVE),
    ];
    valid(
        &lay_out(&far, &SLOTS, 2, 2).expect("a layout"),
        &far,
        &SLOTS,
        2,
        2,
    );
}

#[test]
fn layouts_are_kept_as_json() {
    let classes = vec![Class {
        start: 0,
        list: vec![2, 1],
    }];
    let text = serde_json::to_string(&classes).expect("JSON");
    assert_eq!(text, r#"[{"start":0,"list":[2,1]}]"#);
    assert_eq!(
        serde_json::from_str::<Vec<Class>>(&text).expect("classes"),
        classes
    );
    let node: ListNode = serde_json::from_str(r#"{"id":1,"zone":0}"#).expect("a node");
    assert_eq!(node.weight, 1.0);
}

#[test]
fn longer_lists_begin_as_before_keep_the_rule_of_zones_and_are_about_even() {
    for (nodes, zones) in [(3, 3), (5, 3), (6, 2), (7, 1), (12, 4)] {
        let nodes = even(nodes, zones);
        let old = lay_out(&nodes, &SLOTS, 3, 2).expect("a layout");
        let longer = extend(&old, &nodes, &SLOTS, 5).expect("longer lists");
        let most = nodes.len().min(5);
        for (old, new) in old.iter().zip(&longer) {
            assert_eq!(old.start, new.start);
            assert_eq!(old.list, new.list[..old.list.len()]);
            assert_eq!(new.list.len(), most, "{new:?}");
            let shares = Shares::new(&nodes, most);
            assert!(shares.allows(&new.list), "{new:?}");
        }
        let all = deviations(&longer, &nodes, &SLOTS, 5);
        let (above, below) = all[most - 1];
        assert!(
            above < 0.35 && below > -0.35,
            "{} nodes: {above} {below}",
            nodes.len()
        );
    }
}

#[test]
fn lists_that_are_long_enough_stay() {
    let nodes = even(5, 3);
    let old = lay_out(&nodes, &SLOTS, 3, 2).expect("a layout");
    assert_eq!(extend(&old, &nodes, &SLOTS, 2), Ok(old));
}
