//! Computes replicas and their placement from the load on partitions.
//!
//! - [`cluster`]: the input, checked.
//! - [`replicas`]: how many replicas each partition gets.
//! - [`schemes`]: the nodes of the replicas.
//! - [`routing`]: what a placement can carry, by maximum flow.
//! - [`measure`]: a placement's measures.
//! - [`migrate`]: the least data shipped from the current placement to a good enough one.
//! - [`leaders`]: placement of partitions whose leader serves all requests.
//! - [`spread`]: placement of partitions whose replicas all serve the same part.
//! - [`load_plan`]: the result of either.
//! - [`report`]: all of it for one input, and the drawing.
//! - [`workload`] and [`simulate`]: the paper's workloads, and requests routed to a placement.

pub mod cluster;
pub mod layout;
pub mod leaders;
pub mod load_plan;
pub mod measure;
pub mod migrate;
pub mod replicas;
pub mod report;
pub mod routing;
pub mod schemes;
pub mod simulate;
pub mod spread;
pub mod workload;

#[cfg(test)]
mod tests;
