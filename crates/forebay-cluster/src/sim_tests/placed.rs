//! Tests of plans by the load on partitions, carried out in the simulator.

use forebay_replica::GroupId;

use crate::measures::traffic::{ReplicaTraffic, TrafficRate};

/// Returns a replica's traffic report. Groups have different traffic, and only leaders have reads.
pub fn traffic_of(group: GroupId, leads: bool) -> Option<ReplicaTraffic> {
    let minute = TrafficRate {
        reads: 600 * (group.0 % 7 + 1) * u64::from(leads),
        writes: 60 * (group.0 % 3),
        ..TrafficRate::default()
    };
    Some(ReplicaTraffic {
        minute,
        hour: minute,
        day: minute,
    })
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeSet;

    use forebay_plan::placement::load_plan::LoadLimits;

    use forebay_engine::live::LiveDraft;
    use forebay_engine::{Bound, TableName};

    use super::super::live_runs::{carts_on, live};
    use super::super::world::World;
    use crate::measures::traffic::TrafficWindow;
    use crate::model::{Outcome, Survey};
    use crate::planning::{KnownLoad, PlaceByLoad, PlaceProposal, propose_place};
    use crate::request::Request;

    pub fn wide() -> TableName {
        TableName::new("wide").unwrap()
    }

    /// Builds five nodes with a table of two partitions, and one of twelve.
    pub fn two_tables(seed: u64) -> World {
        let mut world = carts_on(5, seed);
        world.submit(Request::MakeLive {
            table: wide(),
            live: live(LiveDraft::hashed()),
            lowers: (0..12).map(|at| Bound::Slot(at * 1300)).collect(),
            replicas: Some(3),
        });
        world.run_for_s(40);
        world
    }

    pub fn survey(world: &mut World) -> Survey {
        let carts = TableName::new("carts").unwrap();
        let asked = world.submit(Request::Survey {
            tables: [carts, wide()].into(),
        });
        world.run_for_s(20);
        let model = world.store.current();
        match &model.work.answers[&world.ops[asked].id].outcome {
            Outcome::Survey(survey) => survey.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn placed(world: &mut World) -> PlaceProposal {
        let survey = survey(world);
        let by = PlaceByLoad {
            table: &wide(),
            window: TrafficWindow::Hour,
            limits: LoadLimits {
                most_copies: 20,
                share: 0.99,
            },
        };
        let model = world.store.current();
        let known = KnownLoad {
            summaries: &Default::default(),
            reads: &Default::default(),
            survey: &survey,
        };
        propose_place(model, known, &by, 1 << 30).unwrap()
    }

    #[test]
    fn leaders_and_replicas_move_as_the_load_requires() {
        let mut moved = 0;
        for seed in 0..10 {
            let mut world = two_tables(seed);
            let made = placed(&mut world);
            let (before, after) = made.placed.hottest();
            assert!(after <= before, "seed {seed}");
            moved += made.placed.handed_over + made.placed.copies;
            let plan = Box::new(made.proposal.plan);
            world.submit(Request::Rebalance { plan });
            world.run_for_s(120);
            assert_eq!(world.unsettled_live(), None, "seed {seed}");
            assert_eq!(world.checks.violation, None, "seed {seed}");
            let wanted: BTreeSet<_> = made.partitions.iter().map(|one| &one.after[..]).collect();
            let model = world.store.current().clone();
            let groups = model.desired_groups(&wide());
            let lists: BTreeSet<_> = groups.iter().map(|(_, list)| *list).collect();
            assert_eq!(lists, wanted, "seed {seed}");
            let reported = survey(&mut world);
            for (group, list) in groups {
                let reported = &reported[&wide()][&group.partition];
                assert_eq!(reported.leader, list.first().copied(), "seed {seed}");
            }
        }
        assert!(moved > 0);
    }
}
