//! Tests of the rules for every change of a layout.

use proptest::prelude::*;

use super::super::{Class, LayoutChange, Line, ListNode, ListsError, change, lay_out, swap_node};
use super::layouts::{any_line, any_nodes};
use super::{SLOTS, deviations, even, valid};

/// Returns the list of each place.
fn lists<'a>(classes: &'a [Class], line: &Line) -> Vec<&'a [u32]> {
    let at =
        |place: u32| &classes[classes.partition_point(|class| class.start <= place) - 1].list[..];
    (0..line.places() as u32).map(at).collect()
}

/// Returns the amount to be copied from one layout to another.
pub(super) fn copied(old: &[Class], new: &[Class], line: &Line) -> f64 {
    let pairs = lists(old, line).into_iter().zip(lists(new, line));
    let of = |(place, (old, new)): (u32, (&[u32], &[u32]))| {
        let fresh = new.iter().filter(|id| !old.contains(id)).count();
        fresh as f64 * line.weight(place..place + 1)
    };
    (0..).zip(pairs).map(of).sum()
}

/// Fails unless ranges, sums and batches are those from the old layout to the new one.
fn whole_way(changed: &LayoutChange, line: &Line) {
    let (old, new) = (lists(&changed.old, line), lists(&changed.classes, line));
    let mut now = old.clone();
    for range in &changed.ranges {
        for place in range.places.clone() {
            assert_eq!(now[place as usize], range.old);
            now[place as usize] = &range.new;
        }
    }
    assert_eq!(now, new);
    let real = copied(&changed.old, &changed.classes, line);
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + real);
    assert!(
        close(changed.copied, real),
        "{} is not {real}",
        changed.copied
    );
    let by_nodes: f64 = changed.nodes.iter().map(|node| node.copied).sum();
    assert!(close(by_nodes, real), "{by_nodes} is not {real}");
    batches_lead_there(changed, line);
    let plan = changed.plan(line, 3.0, |_| true);
    let end = plan
        .plan
        .simulate(plan.map)
        .expect("a plan that can be carried out");
    for (partition, range) in end.partitions.iter().zip(&changed.ranges) {
        let id = |node: &u32| plan.ids[*node as usize];
        let mut there: Vec<u32> = partition.replicas.iter().map(id).collect();
        assert_eq!(there[0], range.new[0]);
        let mut new = range.new.clone();
        there.sort_unstable();
        new.sort_unstable();
        assert_eq!(there, new);
    }
}

fn batches_lead_there(changed: &LayoutChange, line: &Line) {
    let most = 1.0 + changed.copied * 3.0 / 7.0;
    let (old, new) = (lists(&changed.old, line), lists(&changed.classes, line));
    let mut sum = 0.0;
    let mut last = 0;
    for batch in changed.batches(line, 3.0, most) {
        let alone = batch.ranges.len() == 1 && batch.ranges[0].places.len() == 1;
        assert!(batch.bytes <= most || alone, "{} of {most}", batch.bytes);
        sum += batch.bytes;
        assert!(batch.until > last && batch.ranges[0].places.start >= last);
        last = batch.until;
        let layout = changed.layout_at(batch.until);
        let there = lists(&layout, line);
        let until = batch.until as usize;
        assert_eq!(there[..until], new[..until]);
        assert_eq!(there[until..], old[until..]);
        assert!(layout.len() <= changed.old.len() + changed.classes.len());
        for id in layout.iter().map(|class| class.list[0]) {
            let heads =
                |classes: &[Class]| classes.iter().filter(|class| class.list[0] == id).count();
            assert!(heads(&layout) <= heads(&changed.old) + heads(&changed.classes));
        }
    }
    assert!((sum - 3.0 * changed.copied).abs() <= 1e-9 * (1.0 + sum));
    assert_eq!(changed.layout_at(0), changed.old);
    assert_eq!(changed.layout_at(line.places() as u32), changed.classes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn changes_keep_the_rules(
        before in any_nodes(10),
        after in any_nodes(10),
        line in any_line(),
        replicas in (1usize..5, 1usize..5),
        heads in (1u32..5, 1u32..5),
    ) {
        let old = lay_out(&before, &line, replicas.0, heads.0).expect("a layout");
        let changed = change(&old, &after, &line, replicas.1, heads.1).expect("a change");
        valid(&changed.classes, &after, &line, replicas.1, heads.1);
        whole_way(&changed, &line);
        let again = change(&old, &after, &line, replicas.1, heads.1).expect("a change");
        prop_assert_eq!(&changed, &again);
    }
}

fn of(old: &[Class], nodes: &[ListNode], replicas: usize) -> LayoutChange {
    let changed = change(old, nodes, &SLOTS, replicas, 2).expect("a change");
    valid(&changed.classes, nodes, &SLOTS, replicas, 2);
    whole_way(&changed, &SLOTS);
    changed
}

/// Returns the largest excess of a node over its share, in any prefix.
fn furthest(changed: &LayoutChange, nodes: &[ListNode], replicas: usize) -> f64 {
    let all = deviations(&changed.classes, nodes, &SLOTS, replicas);
    all.into_iter().map(|(above, _)| above).fold(0.0, f64::max)
}

#[test]
fn nothing_is_copied_where_nothing_changed() {
    for (count, zones) in [(3, 1), (5, 3), (10, 1), (10, 3), (50, 1), (50, 3)] {
        let nodes = even(count, zones);
        let old = lay_out(&nodes, &SLOTS, 3, 2).expect("a layout");
        let changed = of(&old, &nodes, 3);
        assert_eq!(changed.copied, 0.0, "{count} nodes, {zones} zones");
    }
}

#[test]
fn little_more_is_copied_than_must_be() {
    for (count, zones, factor) in [
        (3, 1, 1.0),
        (3, 3, 1.0),
        (5, 1, 1.05),
        (5, 3, 1.05),
        (10, 1, 1.3),
        (10, 3, 1.5),
        (50, 1, 1.6),
        (50, 3, 1.6),
    ] {
        let nodes = even(count, zones);
        let old = lay_out(&nodes, &SLOTS, 3, 2).expect("a layout");
        for (what, now) in [
            ("added", even(count + 1, zones)),
            ("drained", nodes[1..].to_vec()),
        ] {
            let changed = of(&old, &now, 3);
            let most = changed.lacking * factor;
            assert!(
                changed.copied <= most,
                "{count} nodes, {zones} zones, one {what}: {} > {most}",
                changed.copied
            );
            let above = furthest(&changed, &now, 3);
            assert!(
                above < 0.15,
                "{count} nodes, {zones} zones, one {what}: {above}"
            );
        }
    }
}

#[test]
fn nodes_that_join_together_cost_their_own_copies() {
    let old = lay_out(&even(6, 3), &SLOTS, 3, 2).expect("a layout");
    let nodes = even(9, 3);
    let changed = of(&old, &nodes, 3);
    assert!(
        changed.copied <= changed.lacking * 1.1,
        "{} of {}",
        changed.copied,
        changed.lacking
    );
    // Nodes that stay copy next to nothing.
    let fresh: f64 = changed
        .nodes
        .iter()
        .filter(|node| node.id >= 6)
        .map(|node| node.copied)
        .sum();
    assert!(
        fresh > 0.9 * changed.copied,
        "{fresh} of {}",
        changed.copied
    );
}

#[test]
fn replicas_are_raised_by_one_copy_and_lowered_by_none() {
    for (count, zones) in [(5, 1), (9, 3), (50, 1)] {
        let nodes = even(count, zones);
        let two = lay_out(&nodes, &SLOTS, 2, 2).expect("a layout");
        let raised = of(&two, &nodes, 3);
        let whole = 16_384.0;
        assert!(
            (raised.copied - whole).abs() <= 0.02 * whole,
            "{} of {whole}",
            raised.copied
        );
        let lowered = of(&raised.classes, &nodes, 2);
        assert!(lowered.copied <= 0.01 * whole, "{}", lowered.copied);
    }
}

#[test]
fn more_weight_takes_from_the_others() {
    let mut nodes = even(10, 1);
    let old = lay_out(&nodes, &SLOTS, 3, 2).expect("a layout");
    nodes[4].weight = 2.0;
    let changed = of(&old, &nodes, 3);
    assert!(
        changed.copied <= 1.5 * changed.lacking,
        "{} of {}",
        changed.copied,
        changed.lacking
    );
    let grown = changed
        .nodes
        .iter()
        .find(|node| node.id == 4)
        .expect("the node");
    assert!(grown.copied > 0.8 * changed.lacking && grown.dropped < 0.05 * grown.copied);
}

#[test]
fn a_node_that_changes_its_zone_is_moved_where_zones_ask_for_it() {
    let mut nodes = even(6, 3);
    let old = lay_out(&nodes, &SLOTS, 3, 2).expect("a layout");
    nodes[0].zone = 1;
    let changed = of(&old, &nodes, 3);
    assert!(changed.copied > 0.0);
}

#[test]
fn a_series_of_changes_stays_even_and_within_its_heads() {
    let mut classes = lay_out(&even(6, 3), &SLOTS, 3, 2).expect("a layout");
    let mut copied = 0.0;
    let mut bound = 0.0;
    for count in [7, 8, 9, 10, 11, 12, 11, 10, 9, 8] {
        let nodes = even(count, 3);
        let changed = of(&classes, &nodes, 3);
        let above = furthest(&changed, &nodes, 3);
        assert!(above < 0.2, "{count} nodes: {above}");
        copied += changed.copied;
        bound += changed.lacking;
        classes = changed.classes;
    }
    assert!(copied < 1.7 * bound, "{copied} of {bound}");
}

#[test]
fn ten_thousand_nodes_change() {
    let nodes = even(10_000, 3);
    let old = lay_out(&nodes, &SLOTS, 3, 2).expect("a layout");
    valid(&old, &nodes, &SLOTS, 3, 2);
    let now = even(10_001, 3);
    let changed = change(&old, &now, &SLOTS, 3, 2).expect("a change");
    valid(&changed.classes, &now, &SLOTS, 3, 2);
    // The new one takes 3 places or so; others move a few where rounding left them.
    assert!(changed.copied < 2_000.0, "{}", changed.copied);
}

#[test]
fn a_node_in_place_of_another_takes_all_its_places() {
    let old = lay_out(&even(5, 1), &SLOTS, 3, 2).expect("a layout");
    let changed = swap_node(&old, 3, 9, &SLOTS).expect("a change");
    whole_way(&changed, &SLOTS);
    let copies: Vec<(u32, f64)> = changed
        .nodes
        .iter()
        .map(|node| (node.id, node.copied))
        .collect();
    assert_eq!(copies, [(3, 0.0), (9, changed.copied)]);
    assert_eq!(changed.lacking, changed.copied);
    assert!((changed.copied / 16_384.0 - 0.6).abs() < 0.01);
    let error = swap_node(&old, 3, 2, &SLOTS).expect_err("a node that is there");
    assert!(
        matches!(error, ListsError::InLists { id: 2, .. }),
        "{error}"
    );
}

#[test]
fn layouts_that_are_none_are_refused() {
    let nodes = even(3, 1);
    let class = |start, list: &[u32]| Class {
        start,
        list: list.to_vec(),
    };
    for (old, problem) in [
        (vec![], "classes[0] of the layout so far is missing"),
        (
            vec![class(1, &[0])],
            "classes[0] of the layout so far begins at place 1",
        ),
        (
            vec![class(0, &[0]), class(0, &[1])],
            "classes[1] of the layout so far begins at place 0, not after",
        ),
        (
            vec![class(0, &[0]), class(4, &[1])],
            "begins at place 4, of 4",
        ),
        (vec![class(0, &[])], "has no nodes"),
        (vec![class(0, &[1, 2, 1])], "names node 1 twice"),
    ] {
        let error = change(&old, &nodes, &Line::Uniform(4), 2, 2).expect_err(problem);
        assert!(error.to_string().contains(problem), "{error}");
    }
}

#[test]
fn a_change_is_drawn_and_kept_as_json() {
    let old = lay_out(&even(3, 1), &SLOTS, 2, 2).expect("a layout");
    let changed = of(&old, &even(4, 1), 2);
    let plan = changed.plan(&SLOTS, 1e6, |id| id != 1);
    let copies_of_the_dead = plan
        .plan
        .steps
        .iter()
        .filter(|step| matches!(step.action, crate::Action::Copy { from: 1, .. }));
    assert_eq!(copies_of_the_dead.count(), 0);
    let picture = plan.picture("one node more");
    assert!(crate::draw::svg(&picture).contains("one node more"));
    assert!(crate::draw::text(&picture, 80).contains("bytes after"));
    let text = serde_json::to_string(&changed).expect("JSON");
    assert_eq!(
        serde_json::from_str::<LayoutChange>(&text).expect("a change"),
        changed
    );
}
