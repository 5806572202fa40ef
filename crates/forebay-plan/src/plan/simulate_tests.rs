use super::super::Node;
use super::*;
use crate::Key;

fn map() -> PartitionMap {
    let partition = |replicas: &[u32]| Partition {
        records: 100.0,
        bytes: 1000.0,
        replicas: replicas.to_vec(),
        high: Some(Key::Integer(50)),
        ..Partition::default()
    };
    PartitionMap {
        nodes: vec![
            Node::default(),
            Node::default(),
            Node {
                alive: false,
                ..Node::default()
            },
        ],
        partitions: vec![partition(&[0]), partition(&[1, 2])],
        min_live: 1,
    }
}

fn run(actions: &[Action]) -> Result<PartitionMap, String> {
    let steps = actions
        .iter()
        .map(|action| Step::new(action.clone(), 0.0, 0.0));
    let plan = Plan {
        steps: steps.collect(),
        ..Plan::default()
    };
    plan.simulate(map()).map_err(|error| error.to_string())
}

#[test]
fn a_move_is_a_copy_a_hand_over_and_a_drop() {
    let (partition, from, to) = (0, 0, 1);
    let moved = run(&[Action::Move {
        partition,
        from,
        to,
    }]);
    let parts = run(&[
        Action::Copy {
            partition,
            from,
            to,
        },
        Action::HandOver {
            partition,
            from,
            to,
        },
        Action::Drop { partition, node: 0 },
    ]);
    assert_eq!(moved, parts);
    assert_eq!(
        moved.expect("a plan that works").partitions[0].replicas,
        [1]
    );
}

#[test]
fn a_split_divides_the_range_and_takes_the_next_number() {
    let at = Some(Key::Integer(20));
    let map = run(&[
        Action::Split {
            partition: 0,
            at: at.clone(),
            right: 2,
        },
        Action::Move {
            partition: 2,
            from: 0,
            to: 1,
        },
    ])
    .expect("a plan that works");
    assert_eq!(
        (&map.partitions[0].high, &map.partitions[2].low),
        (&at, &at)
    );
    assert_eq!(map.partitions[2].high, Some(Key::Integer(50)));
    assert_eq!(
        (map.partitions[0].records, map.partitions[2].bytes),
        (50.0, 500.0)
    );
    assert_eq!(map.partitions[2].replicas, [1]);
}

#[test]
fn impossible_actions_are_refused() {
    for (action, why) in [
        (
            Action::Copy {
                partition: 0,
                from: 1,
                to: 0,
            },
            "no replica",
        ),
        (
            Action::Copy {
                partition: 0,
                from: 0,
                to: 2,
            },
            "does not live",
        ),
        (
            Action::Copy {
                partition: 0,
                from: 0,
                to: 3,
            },
            "no node 3",
        ),
        (
            Action::Copy {
                partition: 1,
                from: 2,
                to: 0,
            },
            "does not live",
        ),
        (
            Action::Copy {
                partition: 0,
                from: 0,
                to: 0,
            },
            "already holds",
        ),
        (
            Action::Copy {
                partition: 7,
                from: 0,
                to: 1,
            },
            "no partition 7",
        ),
        (
            Action::Drop {
                partition: 0,
                node: 0,
            },
            "primary",
        ),
        (
            Action::Drop {
                partition: 0,
                node: 1,
            },
            "holds no replica",
        ),
        (
            Action::HandOver {
                partition: 0,
                from: 0,
                to: 1,
            },
            "holds no replica",
        ),
        (
            Action::HandOver {
                partition: 0,
                from: 1,
                to: 0,
            },
            "not the primary",
        ),
        (
            Action::Move {
                partition: 0,
                from: 1,
                to: 0,
            },
            "no replica",
        ),
        (
            Action::Split {
                partition: 0,
                at: Some(Key::Integer(50)),
                right: 2,
            },
            "within",
        ),
        (
            Action::Split {
                partition: 0,
                at: None,
                right: 5,
            },
            "next number",
        ),
    ] {
        let problem = run(std::slice::from_ref(&action)).expect_err("cannot be done");
        assert!(problem.contains(why), "{action:?}: {problem}");
    }
}

#[test]
fn the_last_live_replica_stays() {
    let hand = Action::HandOver {
        partition: 1,
        from: 1,
        to: 2,
    };
    let drop = Action::Drop {
        partition: 1,
        node: 1,
    };
    let problem = run(&[hand, drop]).expect_err("node 2 does not live");
    assert!(problem.contains("fewer than 1 live"), "{problem}");
    assert!(
        run(&[Action::Drop {
            partition: 1,
            node: 2
        }])
        .is_ok()
    );
}

#[test]
fn steps_wait_for_those_before_them() {
    let mut step = Step::new(
        Action::Move {
            partition: 0,
            from: 0,
            to: 1,
        },
        1.0,
        1.0,
    );
    step.after = vec![0];
    let plan = Plan {
        steps: vec![step],
        ..Plan::default()
    };
    let error = plan.validate(&map()).expect_err("waits for itself");
    assert!(error.to_string().contains("waits for step 0"), "{error}");
    let mut broken = map();
    broken.partitions[1].replicas = vec![1, 1];
    let error = Plan::default()
        .validate(&broken)
        .expect_err("twice on a node");
    assert_eq!(
        error.to_string(),
        "the map's partition 1 is twice on node 1"
    );
}
