//! A directory for files that a command needs only while it runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use forebay_io::Disk;
use tracing::warn;

use crate::context::Context;

/// A temporary directory that is removed with its content when it is dropped.
#[derive(Debug)]
pub struct ScratchDir {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl ScratchDir {
    /// Creates the directory below --work-dir, or in the system's directory for temporary files.
    pub fn make(context: &Context) -> anyhow::Result<Self> {
        let parent = context.work_dir().map(Path::to_path_buf);
        let parent = parent.unwrap_or_else(std::env::temp_dir);
        let path = parent.join(format!("forebay-{:016x}", context.random.next_u64()));
        let disk = Arc::clone(&context.disk);
        let made = disk.create_dir_all(&path);
        made.with_context(|| {
            format!(
                "cannot make {}: --work-dir names another place",
                path.display()
            )
        })?;
        Ok(Self { disk, path })
    }

    /// Returns the path of a store in it, which does not exist yet.
    pub fn store(&self) -> PathBuf {
        self.path.join("store")
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Err(error) = self.disk.remove_dir_all(&self.path) {
            let path = self.path.display();
            warn!(%path, %error, "a directory of temporary files stays");
        }
    }
}
