//! forebay-run
