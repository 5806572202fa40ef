//! Takes back moves that gain nothing: if one machine sets the cost, others have room.

use super::problem::Problem;
use super::state::InsertState;

/// Returns partitions to their homes, the dearest to move first, as long as that raises neither the
/// busiest inserter's time nor the busiest mover's.
pub fn trim(problem: &Problem, dest: Vec<u32>) -> Vec<u32> {
    let cost = problem.cost(&dest);
    let loads = problem.loads(&dest);
    let (insert_max, move_max) = (loads.insert_max(), loads.move_max());
    let mut moved: Vec<u32> = (0..dest.len() as u32)
        .filter(|&index| dest[index as usize] != problem.items[index as usize].home)
        .collect();
    let key = |index: &u32| {
        let item = &problem.items[*index as usize];
        (item.moving, -item.insert)
    };
    moved.sort_by(|a, b| {
        let (a_key, b_key) = (key(a), key(b));
        let by_move = b_key.0.total_cmp(&a_key.0);
        by_move.then(b_key.1.total_cmp(&a_key.1)).then(a.cmp(b))
    });
    let mut state = InsertState::new(problem, dest.clone());
    for item in moved {
        let home = state.home(item);
        let it = &problem.items[item as usize];
        let pace = problem.machines[home as usize].insert_speed;
        let may_return = state.may_go(item, home) && state.has_room(item, home);
        if may_return && state.insert[home as usize] + it.insert / pace <= insert_max {
            state.relocate(item, home);
            debug_assert!(state.moving[home as usize] <= move_max * (1.0 + 1e-9) + 1e-9);
        }
    }
    let trimmed = state.dest().to_vec();
    // Sums in another order may differ in their last digits.
    if problem.cost(&trimmed) <= cost {
        trimmed
    } else {
        dest
    }
}
