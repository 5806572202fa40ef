//! The approximate sizes of local partitions, as their leaders report them.
//!
//! They are measured now and then, because a plan needs no exact number.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::live::PartitionSize;
use forebay_replica::GroupId;
use parking_lot::Mutex;

/// The time after which a partition is measured again.
const AGAIN: Duration = Duration::from_secs(10);

/// The last measured size of each group, and its time.
#[derive(Debug, Default)]
pub struct SizeCache(Mutex<BTreeMap<GroupId, (Duration, PartitionSize)>>);

impl SizeCache {
    /// Returns the last size if it is recent. Otherwise measures it with `look`, which gets the
    /// previous size.
    pub fn seen(
        &self,
        group: GroupId,
        now: Duration,
        look: impl FnOnce(Option<&PartitionSize>) -> Option<PartitionSize>,
    ) -> Option<PartitionSize> {
        let known = self.0.lock().get(&group).cloned();
        if let Some((at, size)) = &known
            && now.saturating_sub(*at) < AGAIN
        {
            return Some(size.clone());
        }
        let size = look(known.as_ref().map(|(_, size)| size))?;
        self.0.lock().insert(group, (now, size.clone()));
        Some(size)
    }

    pub fn forget(&self, group: GroupId) {
        self.0.lock().remove(&group);
    }
}
