//! Checks of the machine that the command runs on.

use std::path::Path;

use forebay_io::Disk;
use forebay_io::raw::open_files_limit;

use super::Finding;
use crate::memory;
use crate::printing::human;

/// With fewer open files a server refuses clients early.
const FEW_FILES: u64 = 4096;
/// With less memory a server of live tables, or a push, spills and flushes all the time.
const LITTLE_MEMORY_BYTES: u64 = 512 << 20;
/// With less space a push may not fit beside the serving version.
const LITTLE_ROOM_BYTES: u64 = 1 << 30;
/// With less space even pointers and logs cannot be written.
const NO_ROOM_BYTES: u64 = 16 << 20;

pub fn open_files() -> Finding {
    const CHECK: &str = "open files";
    match open_files_limit() {
        Some(limit) if limit < FEW_FILES => Finding::warning(
            CHECK,
            format!(
                "this process may open {limit} files: raise it for servers (ulimit -n, LimitNOFILE= of systemd)"
            ),
        ),
        Some(limit) => Finding::ok(CHECK, format!("this process may open {limit}")),
        None => Finding::ok(CHECK, "no limit is known"),
    }
}

pub fn memory(disk: &dyn Disk) -> Finding {
    const CHECK: &str = "memory";
    let bytes = memory::quarter(disk).saturating_mul(4);
    let text = format!("this process may have {}", human::bytes(bytes));
    match bytes < LITTLE_MEMORY_BYTES {
        true => Finding::warning(
            CHECK,
            format!("{text}: give servers and pushes more, or small --memory"),
        ),
        false => Finding::ok(CHECK, text),
    }
}

/// Checks the free space at the location of `path`, whether it exists or not.
pub fn room(disk: &dyn Disk, path: &Path) -> Finding {
    const CHECK: &str = "free disk";
    let shown = path.display();
    let above = path
        .ancestors()
        .find(|path| disk.exists(path).unwrap_or(false));
    match disk.free_bytes(above.unwrap_or(Path::new("/"))) {
        Err(error) => Finding::warning(CHECK, format!("not known for {shown}: {error}")),
        Ok(None) => Finding::ok(CHECK, format!("not known for {shown}")),
        Ok(Some(bytes)) => {
            let text = format!("{} at {shown}", human::bytes(bytes));
            match bytes {
                ..NO_ROOM_BYTES => Finding::failed(
                    CHECK,
                    format!(
                        "{text}: live writes, pushes and loads are refused; drop a table, or make room"
                    ),
                ),
                NO_ROOM_BYTES..LITTLE_ROOM_BYTES => Finding::warning(
                    CHECK,
                    format!("{text}: a push needs room for one more version of its table"),
                ),
                _ => Finding::ok(CHECK, text),
            }
        }
    }
}
