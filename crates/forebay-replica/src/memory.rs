//! Checks whether a replica remembers its promises.
//!
//! A vote and an acknowledgement are promises, stored in the log. A replica that may have lost the
//! end of its log must not vote or answer as the same peer: others rely on what it said. It leaves
//! the group and joins again as a new peer, a learner first. The shell calls this module before it
//! makes a [`Replica`](crate::Replica) of what it found.

use thiserror::Error;

use crate::bugs::{Bug, is_planted};

/// The moment from which a write survives the loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Once it is acknowledged.
    Sync,
    /// When the system writes it: an acknowledged write survives the end of the process only.
    Os,
    /// As `Os`, and synced at this interval in milliseconds.
    EveryMs(u64),
}

/// The traces of a replica that a starting process found.
#[derive(Debug, Clone)]
pub struct FoundMemory {
    pub durability: Durability,
    /// The machine's boot id when the log was last opened (Linux: /proc/sys/kernel/random/boot_id).
    pub boot_then: u128,
    pub boot_now: u128,
    /// The previous process stopped cleanly: it synced the log and left a marker. The new process
    /// removes the marker, and syncs that, before it makes any promise.
    pub stopped_clean: bool,
    /// Each record of the log is whole, up to its end or to a torn last one that was never
    /// acknowledged.
    pub log_is_whole: bool,
}

/// A reason why a replica has to join again as a new peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MemoryLoss {
    #[error(
        "the machine restarted, and its durability does not keep all that was acknowledged: the \
         replica joins its group again as a new peer"
    )]
    Restart,
    #[error("the log is damaged: the replica joins its group again as a new peer")]
    Damage,
}

pub fn check_memory(found: &FoundMemory) -> Result<(), MemoryLoss> {
    if is_planted(Bug::VotesAfterForgetting) {
        return Ok(());
    }
    if !found.log_is_whole {
        return Err(MemoryLoss::Damage);
    }
    let is_same_boot = found.boot_then == found.boot_now;
    match found.durability {
        Durability::Sync => Ok(()),
        _ if is_same_boot || found.stopped_clean => Ok(()),
        Durability::Os | Durability::EveryMs(_) => Err(MemoryLoss::Restart),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_may_be_lost_counts_as_lost() {
        let found = FoundMemory {
            durability: Durability::Os,
            boot_then: 1,
            boot_now: 1,
            stopped_clean: false,
            log_is_whole: true,
        };
        assert_eq!(check_memory(&found), Ok(()), "only the process ended");
        let restarted = FoundMemory {
            boot_now: 2,
            ..found.clone()
        };
        assert_eq!(check_memory(&restarted), Err(MemoryLoss::Restart));
        let durability = Durability::EveryMs(100);
        let often = FoundMemory {
            durability,
            ..restarted.clone()
        };
        assert_eq!(check_memory(&often), Err(MemoryLoss::Restart));
        let synced = FoundMemory {
            durability: Durability::Sync,
            ..restarted.clone()
        };
        assert_eq!(check_memory(&synced), Ok(()));
        let clean = FoundMemory {
            stopped_clean: true,
            ..restarted
        };
        assert_eq!(check_memory(&clean), Ok(()));
        let damaged = FoundMemory {
            log_is_whole: false,
            ..synced
        };
        assert_eq!(check_memory(&damaged), Err(MemoryLoss::Damage));
    }
}
