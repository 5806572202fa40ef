//! Copies a live table as of one moment into another store, while it is written to.
//!
//!     cargo run --example checkpoint -- STORE BACKUP

use std::path::Path;
use std::time::Duration;

use forebay::{Error, LiveOptions};

/// Creates a store at `backup` that has the table `sessions` as it is now.
pub fn run(store: &Path, backup: &Path) -> Result<(), Error> {
    let store = forebay::open_or_create(store)?;
    let sessions = store.live_or_create("sessions", LiveOptions::hashed())?;
    sessions.put("s1", "Ada")?;
    sessions.put_for("s2", "Bob", Duration::from_secs(3600))?;
    println!("s2 lasts {:?}", sessions.lifetime("s2")?);

    let copied = store.checkpoint("sessions", backup)?;
    println!("{} records, {} bytes", copied.records, copied.file_bytes);
    sessions.put("s3", "Cyd")?;

    let backup = forebay::open(backup)?;
    let then = backup.live("sessions")?;
    assert!(then.contains_key("s1")? && !then.contains_key("s3")?);
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let store = args.next().unwrap_or_else(|| "example-store".to_owned());
    let backup = args.next().unwrap_or_else(|| "example-backup".to_owned());
    run(Path::new(&store), Path::new(&backup))
}
