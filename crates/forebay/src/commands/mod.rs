//! The commands, one module each: arguments, behaviour and output.

pub mod cluster;
pub mod creating;
pub mod doctor;
pub mod inspect;
pub mod keep;
pub mod live;
pub mod plan;
pub mod publish;
pub mod serve;
pub mod serve_cluster;
pub mod shell_help;
