//! Describes the files of a source.
//!
//! Remote files are described concurrently, because each waits for responses.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_io::pool;

use super::blob::Blob;
use super::error::SourceError;
use super::find::FoundFile;
use super::hive::{Partition, PartitionTypes};
use super::{Content, File, SourceOptions};
use crate::sources::text_files::guesses;

/// The number of remote files described at once.
const AT_ONCE: usize = 16;

type Described = Result<File, SourceError>;

/// Returns all files in order, or the error of the first that cannot be read.
pub(super) fn all(
    found: Vec<FoundFile>,
    options: &SourceOptions,
) -> Result<Vec<Arc<File>>, SourceError> {
    let partitions: Vec<Vec<Partition>> = (found.iter())
        .map(|found| found.partitions.clone())
        .collect();
    let is_given = |name: &str| {
        let given = options.columns.iter().any(|given| given.path == name);
        given || options.table.iter().any(|(column, _)| column == name)
    };
    let types = PartitionTypes::of(partitions.iter().map(Vec::as_slice), is_given);
    let blobs: Vec<Blob> = found.into_iter().map(|found| found.blob).collect();
    let far = blobs.iter().filter(|blob| blob.far().is_some()).count();
    let described = match far {
        0 | 1 => {
            let blobs = blobs.into_iter();
            let files = blobs.map(|blob| File::describe(blob, options));
            files.collect::<Result<Vec<File>, SourceError>>()?
        }
        _ => side_by_side(&blobs, options)?,
    };
    let mut files = described;
    guesses::settle(&mut files, options)?;
    let whole = |(mut file, partitions): (File, Vec<Partition>)| {
        if let Content::Text(_, text) = &mut file.content {
            text.leave_out_unmet(|name| partitions.iter().any(|said| said.column == name));
        }
        file.constants = types.constants(&partitions, file.fields());
        Arc::new(file)
    };
    Ok(files.into_iter().zip(partitions).map(whole).collect())
}

fn side_by_side(blobs: &[Blob], options: &SourceOptions) -> Result<Vec<File>, SourceError> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Described)>> = Mutex::default();
    let work = || {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(blob) = blobs.get(at) else { return };
            let file = File::describe(blob.clone(), options);
            // The files after it need not be inspected.
            if file.is_err() {
                next.store(blobs.len(), Relaxed);
            }
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((at, file));
        }
    };
    pool(AT_ONCE.min(blobs.len()), work);
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, file)| file).collect()
}
