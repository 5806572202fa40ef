//! Draws a plan: the bytes on nodes before and afterwards, and the copies between them over time.

use std::collections::BTreeMap;

use forebay_plan::draw::{Picture, Stage, size, timeline_of_copies};
use forebay_plan::plan::{Action, Plan, Step};

use super::{BatchCopy, NodeBytes, Proposal};
use crate::ids::NodeId;
use crate::model::Model;

impl Proposal {
    /// Returns the drawing. If a node copies from the store, the store is drawn after the nodes.
    pub fn picture(&self, model: &Model, title: &str) -> Picture {
        let numbers: BTreeMap<NodeId, u32> = self.nodes.keys().copied().zip(0..).collect();
        let store = numbers.len() as u32;
        let number = |from: Option<NodeId>| match from {
            Some(node) => numbers.get(&node).copied().unwrap_or(store),
            None => store,
        };
        let is_from_store = self.copies.iter().any(|copy| number(copy.from) == store);
        let count = store as usize + usize::from(is_from_store);
        let stage = |title, value: fn(&NodeBytes) -> u64| {
            let mut values: Vec<f64> = self.nodes.values().map(|one| value(one) as f64).collect();
            values.resize(count, 0.0);
            Stage::new(title, 0, values)
        };
        let names = self.nodes.keys().map(|node| model.node_name(*node));
        let mut names: Vec<String> = names.collect();
        names.push("store".to_owned());
        let flow = |copy: &BatchCopy| (number(copy.from), number(Some(copy.to)), copy.bytes as f64);
        Picture {
            title: title.to_owned(),
            lines: vec![self.figures()],
            stages: vec![
                stage("bytes before", |node| node.before),
                stage("bytes after", |node| node.after),
            ],
            flows: Picture::sum_flows(self.copies.iter().map(flow)),
            unit: "bytes".to_owned(),
            sizes: true,
            names,
            timeline: timeline_of_copies(&self.steps(&number), count, "byte"),
            ..Picture::default()
        }
    }

    /// Describes the plan's cost in a few words.
    pub fn figures(&self) -> String {
        let (batches, splits) = (self.plan.batches.len(), self.plan.splits());
        if batches == 0 {
            return "nothing is to be changed".to_owned();
        }
        let cut = match splits {
            0 => String::new(),
            1 => "1 split; ".to_owned(),
            splits => format!("{splits} splits; "),
        };
        let copied = size(self.copied_bytes() as f64);
        let es = if batches == 1 { "" } else { "es" };
        let time = self.expected.map_or_else(String::new, |time| {
            format!(", about {:.0} s", time.as_secs_f64())
        });
        format!("{cut}{copied} are copied, in {batches} batch{es}{time}")
    }

    /// Returns the copies, each batch after the one before.
    fn steps(&self, number: &impl Fn(Option<NodeId>) -> u32) -> Plan {
        let mut steps: Vec<Step> = Vec::new();
        let (mut before, mut begun, mut batch) = (0..0, 0, 0);
        for copy in &self.copies {
            let at = steps.len() as u32;
            if copy.batch != batch {
                (before, begun, batch) = (begun..at, at, copy.batch);
            }
            let action = Action::Copy {
                partition: copy.batch as u32,
                from: number(copy.from),
                to: number(Some(copy.to)),
            };
            steps.push(Step {
                after: before.clone().collect(),
                ..Step::new(action, 0.0, copy.bytes as f64)
            });
        }
        Plan {
            steps,
            ..Plan::default()
        }
    }
}
