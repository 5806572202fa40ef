//! forebay-load
