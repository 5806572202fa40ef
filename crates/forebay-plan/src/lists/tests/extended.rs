//! Tests of lists that get longer.

use super::super::{extend, lay_out};
use super::*;

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
