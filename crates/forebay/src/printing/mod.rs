//! How results are printed.

pub(crate) mod human;
pub(crate) mod output;
pub(crate) mod render;
pub(crate) mod result_file;
