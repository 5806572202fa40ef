//! Which node has what: maps, layouts, places.

pub(crate) mod layouts;
pub mod live;
pub(crate) mod live_places;
pub mod map;
pub(crate) mod searches;
pub mod version;
