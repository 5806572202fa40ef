//! Merge-based growth: chooses the sorted runs to merge next (the HugeDB paper, section 3).
//!
//! Runs are kept oldest first, each with a level. When `factor` runs of a level are adjacent, with
//! no higher level between them, they are merged into one run of the next level. So a record is
//! written once a level, and each level has fewer than `factor` runs. The paper pops from the top
//! of a stack. In this code the runs may be anywhere in the list, as long as they are neighbours in
//! history.

use std::ops::Range;

/// The runs to merge, and the level of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergeTask {
    pub runs: Range<usize>,
    pub level: u32,
}

/// Returns the next merge: of those that are due, the one of the lowest level, which is the
/// cheapest.
pub(crate) fn due(levels: &[u32], factor: usize) -> Option<MergeTask> {
    let greatest = *levels.iter().max()?;
    (0..=greatest).find_map(|level| due_at(levels, level, factor))
}

/// Returns the first merge that is due at that level.
pub(crate) fn due_at(levels: &[u32], level: u32, factor: usize) -> Option<MergeTask> {
    let mut first = 0;
    let mut count = 0;
    for (place, &found) in levels.iter().enumerate() {
        if found > level {
            count = 0;
        } else if found == level {
            if count == 0 {
                first = place;
            }
            count += 1;
            if count == factor {
                debug_assert!(
                    levels[first..=place]
                        .iter()
                        .all(|between| *between <= level),
                    "a run above level {level} is between those of {levels:?} that are due"
                );
                return Some(MergeTask {
                    runs: first..place + 1,
                    level: level + 1,
                });
            }
        }
    }
    None
}

/// Returns the level of a run that was built elsewhere: the one at which runs have about its size,
/// when those of level 0 have `level_0_bytes`.
pub(crate) fn level_of(bytes: u64, level_0_bytes: u64, factor: u64) -> u32 {
    (bytes / level_0_bytes.max(1)).max(1).ilog(factor.max(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's figure 1: eleven documents at b = 3 become runs of 9, 1 and 1.
    #[test]
    fn the_papers_figure_is_reproduced() {
        let mut levels: Vec<u32> = Vec::new();
        let mut merges = 0;
        for document in [0; 11] {
            levels.push(document);
            while let Some(due) = due(&levels, 3) {
                levels.splice(due.runs, [due.level]);
                merges += 1;
            }
        }
        assert_eq!(levels, [2, 0, 0]);
        assert_eq!(merges, 4);
    }

    #[test]
    fn a_large_run_between_parts_neighbours_and_a_small_one_is_taken_along() {
        assert_eq!(due(&[0, 0, 3, 0, 0], 4), None);
        assert_eq!(
            due(&[0, 0, 3, 0, 0], 2),
            Some(MergeTask {
                runs: 0..2,
                level: 1
            })
        );
        assert_eq!(
            due(&[1, 0, 1], 2),
            Some(MergeTask {
                runs: 0..3,
                level: 2
            })
        );
        assert_eq!(
            due(&[2, 2, 0, 1], 2),
            Some(MergeTask {
                runs: 0..2,
                level: 3
            })
        );
        assert_eq!(due(&[], 2), None);
    }

    #[test]
    fn levels_rise_with_sizes_by_the_factor() {
        let levels = [0, 10, 39, 40, 159, 160, 640].map(|bytes| level_of(bytes, 10, 4));
        assert_eq!(levels, [0, 0, 0, 1, 1, 2, 3]);
    }
}
