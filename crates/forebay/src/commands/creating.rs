//! Whether a command makes the store that it is to write to.

use clap::Args;

/// The options that say so.
#[derive(Debug, Args)]
pub struct CreatingArgs {
    /// Make the store where there is none. Without it only ./forebay-data is made, which is meant
    /// where no store is named: a path that --store or FOREBAY_STORE names may be mistyped
    #[arg(long, conflicts_with = "no_create", help_heading = "Store")]
    pub create: bool,

    /// Refuse to make a store where there is none, as on a mount point that is not mounted
    #[arg(long, help_heading = "Store")]
    pub no_create: bool,
}

/// When a store is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreCreation {
    Always,
    Never,
    /// Where no store is named, and by programs that embed the command.
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
