//! Comparisons of versions, samples and statistics.

pub(crate) mod compare;
pub(crate) mod diff;
pub(crate) mod expect;
pub(crate) mod row_estimate;
pub(crate) mod sample;
pub(crate) mod sampled_pages;
pub(crate) mod schema_change;
