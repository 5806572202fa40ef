//! Tests of a store that allows reads but no writes, so that no node coordinates.

use super::matrix::quiet_cluster;
use super::world::World;

fn serves(world: &World, host: usize) -> bool {
    let process = world.hosts[host].process.as_ref();
    process.is_some_and(|process| !process.active.is_empty())
}

#[test]
fn nodes_that_start_then_serve_what_they_held() {
    let mut world = quiet_cluster(World::new(21), 3, 0);
    world.kill(2);
    // The others detect that it is down.
    world.go_on_for_s(30);
    (0..2).for_each(|host| world.kill(host));
    world.store.is_read_only = true;
    world.go_on_for_s(5);
    (0..3).for_each(|host| world.start(host));
    world.go_on_for_s(20);
    assert!(
        (0..3).all(|host| !serves(&world, host)),
        "somebody may yet coordinate"
    );
    world.go_on_for_s(20);
    assert!((0..3).all(|host| serves(&world, host)));
    world.store.is_read_only = false;
    world.go_on_for_s(30);
    let model = world.store.current();
    assert!(model.all_nodes().all(|node| node.is_up()));
    assert_eq!(world.checks.violation, None);
}
