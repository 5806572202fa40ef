//! The placement schemes: the paper's, and one of our own.
//!
//! | scheme | replicas | placement |
//! | --- | --- | --- |
//! | `base` | the same for all | nodes have whole groups of partitions, ceil(partitions / slots) groups in turn |
//! | `coarse` | of groups, from the groups' load | one group a node |
//! | `compact` | from the load | as few different partitions a node as keep the load even; slots may be stacked |
//! | `balanced` | from the load | the even split of the load as even as it can be |
//! | `smooth` | from half the load and half the mean | partners differ, neighbours are apart: load may shift |
//! | `complete` | as many as nodes | every node has everything, whatever its slots: the ideal to compare with |

mod balanced;
mod builder;
mod compact;
mod groups;
mod partners;
mod smooth;

use std::str::FromStr;

use super::cluster::PlacementProblem;
use super::layout::Placement;
use super::replicas::Objective;
use crate::InputError;

/// A scheme of replication and placement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scheme {
    Base,
    Coarse,
    Compact,
    Balanced,
    Complete,
    #[default]
    Smooth,
}

const NAMES: [(Scheme, &str); 6] = [
    (Scheme::Base, "base"),
    (Scheme::Coarse, "coarse"),
    (Scheme::Compact, "compact"),
    (Scheme::Balanced, "balanced"),
    (Scheme::Complete, "complete"),
    (Scheme::Smooth, "smooth"),
];

impl Scheme {
    pub fn name(self) -> &'static str {
        let mut names = NAMES.iter();
        names
            .find(|(scheme, _)| *scheme == self)
            .map_or("", |(_, name)| name)
    }
}

impl FromStr for Scheme {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(scheme, _)| *scheme).ok_or_else(|| {
            let names = NAMES.map(|(_, name)| name).join(", ");
            format!("'{text}' is no scheme; there are {names} and migrate")
        })
    }
}

/// Makes a placement by `scheme`, from nothing. `objective` chooses the replication vector; `base`
/// and `complete` have none.
pub fn place(
    cluster: &PlacementProblem,
    scheme: Scheme,
    objective: Objective,
) -> Result<Placement, InputError> {
    cluster.check_room()?;
    match scheme {
        Scheme::Base => groups::base(cluster),
        Scheme::Coarse => groups::coarse(cluster, objective),
        Scheme::Compact => compact::compact(cluster, objective),
        Scheme::Balanced => balanced::balanced(cluster, objective),
        Scheme::Smooth => smooth::smooth(cluster, objective),
        Scheme::Complete => groups::complete(cluster),
    }
}
