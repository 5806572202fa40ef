//! About how much the partitions here hold, as their leaders tell. It is looked at now and then:
//! who plans needs no exact number.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::live::PartitionSize;
use forebay_replica::GroupId;
use parking_lot::Mutex;

/// A partition is looked at again after so long.
const AGAIN: Duration = Duration::from_secs(10);

/// What was seen of groups, and when.
#[derive(Debug, Default)]
pub struct SizeCache(Mutex<BTreeMap<GroupId, (Duration, PartitionSize)>>);

impl SizeCache {
    /// As it was seen a moment ago; else as `look` sees it now, given what was seen before.
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
