//! The extension module of the Python package: commands, and tables embedded in the process.
//!
//! What a user sees (classes with their documentation, results, drawings) is Python, in
//! `../forebay`. This module has what needs the libraries. Every call that may wait for a disk, a
//! lock or a thread releases the interpreter meanwhile. Every object may be used by several
//! threads.

mod arguments;
mod command;
mod distributed;
mod errors;
mod forks;
mod keys;
mod listener;
mod not_stored;
mod opened;
mod operations;
mod pack;
mod scan;
mod shape;
mod store;
mod table;
mod turns;
mod values;

use pyo3::prelude::*;

#[pymodule]
fn _forebay(module: &Bound<'_, PyModule>) -> PyResult<()> {
    forebay_io::raw::raise_open_files_limit();
    module.add_function(wrap_pyfunction!(arguments::column_names, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::scan_limit, module)?)?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    module.add_function(wrap_pyfunction!(forks::is_forked, module)?)?;
    module.add_function(wrap_pyfunction!(keys::key_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(keys::all_key_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(not_stored::not_stored_of, module)?)?;
    module.add_function(wrap_pyfunction!(store::open_url, module)?)?;
    module.add_class::<store::RawStore>()?;
    module.add_class::<table::RawTable>()?;
    module.add_class::<scan::RawScan>()?;
    module.add_class::<scan::RawRecords>()?;
    module.add_class::<distributed::DistributedPush>()?;
    module.add_class::<distributed::DistributedLoad>()?;
    module.add_class::<distributed::TaskEncoder>()?;
    module.add_class::<distributed::PartWriter>()?;
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
