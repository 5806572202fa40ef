//! Output files that a user names.
//!
//! A file appears, or is replaced, when it is complete. It keeps its mode and, if the system allows
//! it, its owner. If the name is a symbolic link, its target is replaced. A pipe or a character
//! device is written to directly.
#![allow(
    clippy::disallowed_methods,
    reason = "these are the user's files, with modes and links, not those of a store"
)]

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

/// The most links to follow: more than any system follows.
const MOST_LINKS: usize = 40;

/// Returns whether a file is standard output: `-`, or another name of it, such as `/dev/stdout`.
pub fn is_stdout(path: &Path) -> bool {
    let stdout = || File::from(io::stdout().as_fd().try_clone_to_owned()?).metadata();
    let same = |(a, b): (Metadata, Metadata)| (a.dev(), a.ino()) == (b.dev(), b.ino());
    path.as_os_str() == "-" || fs::metadata(path).ok().zip(stdout().ok()).is_some_and(same)
}

/// Returns whether the path exists and is not a plain file: a pipe or a character device, which is
/// written to directly, or something that is refused.
pub fn is_no_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file())
}

/// Returns whether two names refer to one existing file.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    let both = fs::metadata(a).ok().zip(fs::metadata(b).ok());
    both.is_some_and(|(a, b)| a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

/// An unfinished output file. If it is dropped unfinished, it leaves nothing.
#[derive(Debug)]
pub struct ResultFile {
    file: File,
    /// The temporary name and the final name; none for an output that is written directly.
    grows: Option<(PathBuf, PathBuf)>,
}

impl ResultFile {
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        match fs::metadata(path) {
            Ok(there) if there.is_file() => Self::beside(&target_of(path)?, Some(&there)),
            Ok(there) if there.file_type().is_fifo() || there.file_type().is_char_device() => {
                let file = OpenOptions::new().write(true).open(path)?;
                Ok(Self { file, grows: None })
            }
            Ok(there) if there.is_dir() => bail!("it is a directory: give a file's name"),
            Ok(_) => bail!("it is no file, pipe or character device: give a file's name"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::beside(&target_of(path)?, None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Begins `.NAME.part` beside the file, with the mode of the file that it will replace.
    fn beside(target: &Path, replaced: Option<&Metadata>) -> anyhow::Result<Self> {
        let name = target.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| anyhow!("that is not the name of a file"))?;
        let part = target.with_file_name(format!(".{name}.part"));
        let named = || format!("cannot create {}", part.display());
        match fs::remove_file(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(named);
            }
            _ => {}
        }
        let mode = replaced.map_or(0o666, |metadata| metadata.mode() & 0o7777);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&part)
            .with_context(named)?;
        let made = Self {
            file,
            grows: Some((part, target.to_path_buf())),
        };
        if let Some(replaced) = replaced {
            // Only root may change the owner. Any other user who replaces a file owns it
            // afterwards.
            _ = fchown(&made.file, Some(replaced.uid()), Some(replaced.gid()));
            made.file.set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(made)
    }

    /// Makes the content durable, and renames the file.
    pub fn finish(mut self) -> io::Result<()> {
        let Some((part, target)) = &self.grows else {
            return Ok(());
        };
        self.file.sync_data()?;
        fs::rename(part, target)?;
        self.grows = None;
        Ok(())
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.grows {
            // The cause of the failure matters, not the failed removal of the partial file.
            _ = fs::remove_file(part);
        }
    }
}

impl Write for ResultFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the path after following links, whether a file exists or not.
fn target_of(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            // It is not a link, or it does not exist.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("its symbolic links go round in a circle"))
}
