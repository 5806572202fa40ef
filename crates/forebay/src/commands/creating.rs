//! The options that say whether a command creates the store that it writes to.

use clap::Args;

/// The options for creating the store.
#[derive(Debug, Args)]
pub struct CreatingArgs {
    /// Create the store if it does not exist. Without this only ./forebay-data is created, and only
    /// if no store is named: a path in --store or FOREBAY_STORE may be mistyped
    #[arg(long, conflicts_with = "no_create", help_heading = "Store")]
    pub create: bool,

    /// Refuse to create a store if it does not exist, as on a mount point that is not mounted
    #[arg(long, help_heading = "Store")]
    pub no_create: bool,
}

/// A policy for creating the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreCreation {
    Always,
    Never,
    /// Creates a store if none is named, and for programs that embed the command.
    Default,
}

impl CreatingArgs {
    pub fn creating(&self) -> StoreCreation {
        match (self.create, self.no_create) {
            (true, _) => StoreCreation::Always,
            (_, true) => StoreCreation::Never,
            _ => StoreCreation::Default,
        }
    }
}
