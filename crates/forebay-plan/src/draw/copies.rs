//! Builds the timeline of a plan of copies whose bandwidths are not known.

use super::timeline::{Activity, TimeBar, TimeUnit, Timeline};
use crate::plan::{Action, Node, Plan};

/// Returns when the copies of a plan are made, if each node ships one after the other at one pace.
pub fn timeline_of_copies(plan: &Plan, nodes: usize, unit: &'static str) -> Option<Timeline> {
    let node = Node {
        bytes_per_second: Some(1.0),
        ..Node::default()
    };
    let times = plan.step_times(&vec![node; nodes])?;
    let mut timeline = Timeline {
        unit: TimeUnit::One(unit),
        steps_end: times.iter().map(|time| time.end).fold(0.0, f64::max),
        ..Timeline::default()
    };
    for (step, time) in plan.steps.iter().zip(times) {
        if let Action::Copy {
            partition,
            from,
            to,
        } = step.action
        {
            for (node, work) in [
                (from, Activity::Send(partition, to)),
                (to, Activity::Receive(partition, from)),
            ] {
                let (begin, end) = (time.begin, time.end);
                timeline.bars.push(TimeBar {
                    work,
                    node,
                    begin,
                    end,
                });
            }
        }
    }
    Some(timeline).filter(|timeline| timeline.end() > 0.0)
}
