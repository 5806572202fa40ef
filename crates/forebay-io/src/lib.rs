//! Files, time, randomness and the network as the rest of Forebay sees them.
//!
//! Nothing above this crate opens a file, reads a clock, draws a random number or listens at a port
//! directly: it gets a [`Disk`], a [`Clock`], a [`Random`] or a [`Net`]. The real ones are
//! [`OsDisk`], [`SystemClock`], [`SystemRandom`] and, with the feature `net`, `OsNet`.
//! [`MemoryDisk`] keeps files in memory; [`sim`] has the replacements for tests. All `unsafe` code
//! is in [`raw`].

#![allow(
    clippy::disallowed_methods,
    reason = "this is the home of files, clocks, randomness and ports"
)]

mod clock;
mod disk;
mod inbox;
mod log_file;
mod memory;
mod net;
mod os;
#[cfg(feature = "net")]
mod os_net;
mod quotas;
mod random;
pub mod raw;
pub mod sim;
mod threads;
mod throttle;
mod yielding;

pub use clock::{Clock, SystemClock, Waiting, within};
pub use disk::{
    Disk, Lock, LogFile, ReadFile, WriteFile, advice, dir_of, is_bad_device, is_out_of_files,
    is_out_of_space, may_pass, out_of_files, put_file, replace_file,
};
pub use inbox::{Inbox, InboxSender, Receipt, inbox};
pub use memory::MemoryDisk;
pub use net::{Arrival, Connecting, Listener, Net, NetStream};
pub use os::OsDisk;
#[cfg(feature = "net")]
pub use os_net::OsNet;
pub use quotas::{memory_quota, processor_quota};
pub use random::{Random, SystemRandom};
pub use threads::{
    behind, check_threads, pool, side_by_side, start_answering, start_behind, start_thread,
    start_within,
};
pub use throttle::Throttle;
pub use yielding::{avoid_large_pages, give_way, limit_behind};
