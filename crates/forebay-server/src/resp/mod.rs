//! The Redis protocol: commands in (RESP2 arrays and inline lines), replies out (RESP2 or RESP3).

mod args;
mod reply;
mod request;
mod too_long;

pub use args::{Args, OwnedArgs, Span};
pub use reply::Reply;
pub use request::{Parser, ProtocolError, RequestLimits};
pub use too_long::LongCommand;
