//! An insert plan as a picture.

use super::planner::{InsertPlan, RegionPlan};
use crate::draw::{Picture, Stage, short};
use crate::{Action, NodePrice};

impl InsertPlan {
    /// One picture for the request's own machines and one for each further region.
    pub fn pictures(&self) -> Vec<Picture> {
        let regions = std::iter::once(&self.own).chain(&self.regions);
        regions.map(|region| self.picture(region)).collect()
    }

    fn picture(&self, region: &RegionPlan) -> Picture {
        let nodes = &region.plan.price.nodes;
        let values = |of: fn(&NodePrice) -> f64| nodes.iter().map(of).collect::<Vec<f64>>();
        let name = self.name.as_deref().unwrap_or("Bulk insert");
        let title = match &region.name {
            Some(region) => format!("{name}, region {region}"),
            None => name.to_owned(),
        };
        let transfers = region
            .plan
            .steps
            .iter()
            .filter_map(|step| match step.action {
                Action::Move { from, to, .. } => Some((from, to, step.records)),
                _ => None,
            });
        Picture {
            lines: self.lines(region),
            title,
            stages: vec![
                Stage::new("existing before", 0, values(|node| node.before)),
                Stage::new("existing after moves", 0, values(|node| node.after)),
                Stage::new(
                    "moved in and out",
                    1,
                    values(|node| node.moved_in + node.moved_out),
                ),
                Stage::new(
                    "inserted without plan",
                    2,
                    values(|node| node.insert_before),
                ),
                Stage::new("inserted with plan", 2, values(|node| node.insert_after)),
            ],
            flows: Picture::sum_flows(transfers),
            unit: "records".to_owned(),
            names: region
                .machine_names
                .iter()
                .map(|name| name.clone().unwrap_or_default())
                .collect(),
        }
    }

    fn lines(&self, region: &RegionPlan) -> Vec<String> {
        let RegionPlan {
            cost,
            cost_no_moves,
            lower_bound,
            ..
        } = region;
        let above = if *lower_bound > 0.0 {
            (cost / lower_bound - 1.0) * 100.0
        } else {
            0.0
        };
        let saved = if *cost_no_moves > 0.0 {
            (1.0 - cost / cost_no_moves) * 100.0
        } else {
            0.0
        };
        let moved: f64 = region
            .plan
            .price
            .nodes
            .iter()
            .map(|node| node.moved_in)
            .sum();
        let mut lines = vec![
            format!(
                "{} partitions on {} machines, {} splits, {} moves ({} records)",
                region.dest.len(),
                region.machines,
                self.splits.len(),
                region.moves.len(),
                short(moved)
            ),
            format!(
                "cost {} (moving {} + inserting {}), {saved:.1}% below no moves at {}; no plan comes \
                 below {}, so this one is at most {above:.2}% above the best",
                short(*cost),
                short(region.plan.price.moving),
                short(region.plan.price.insert),
                short(*cost_no_moves),
                short(*lower_bound)
            ),
        ];
        if let Some(seconds) = region.plan.duration_seconds {
            lines.push(format!(
                "takes about {} s at the bandwidths given",
                short(seconds)
            ));
        }
        if !self.oversize.is_empty() {
            lines.push(format!(
                "{} partitions will exceed the limit: their samples have too few distinct keys",
                self.oversize.len()
            ));
        }
        lines
    }
}
