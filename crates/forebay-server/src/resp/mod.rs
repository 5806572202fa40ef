//! The Redis protocol: parses commands and writes replies.
//!
//! Commands are RESP2 arrays and inline lines. Replies are in RESP2 or RESP3.

mod args;
mod reply;
mod request;
mod too_long;

pub use args::{Args, OwnedArgs, Span};
pub use reply::Reply;
pub use request::{Parser, ProtocolError, RequestLimits};
pub use too_long::LongCommand;
