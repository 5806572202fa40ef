use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay_io::{Clock, SystemClock};
use forebay_replica::{GroupId, Refusal};

use super::ring::{Ring, wait_for};

const GROUP: GroupId = GroupId(1);

#[test]
fn an_acknowledged_write_reaches_all_replicas_and_is_read_at_the_leader_at_once() {
    let ring = Ring::new(3, 3);
    for group in [1, 2, 3].map(GroupId) {
        let leader = ring.leader(group);
        let mut sum = 0;
        for step in 1..50 {
            sum += step;
            assert_eq!(ring.add(group, step).0, sum);
            assert_eq!(ring.read(leader, group), Some(sum));
        }
        for node in ring.nodes.keys().copied() {
            wait_for("a read at a follower", || {
                ring.read(node, group) == Some(sum)
            });
        }
        assert_eq!(ring.agree(group), sum);
        let permit = ring.nodes[&leader].host.as_ref().unwrap().try_read(group);
        assert!(
            permit.is_some_and(|permit| permit.holds()),
            "the leader reads by its lease"
        );
    }
    let follower = ring.nodes.keys().find(|node| **node != ring.leader(GROUP));
    let refused = ring.try_add(*follower.unwrap(), GROUP, 1).unwrap();
    assert!(
        matches!(refused, Err(Refusal::NotLeader(Some(_)))),
        "{refused:?}"
    );
}

#[test]
fn concurrent_writes_are_written_together() {
    let ring = Arc::new(Ring::new(3, 4));
    let groups = [1, 2, 3, 4].map(GroupId);
    for group in groups {
        ring.leader(group);
    }
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let ring = Arc::clone(&ring);
            scope.spawn(move || {
                for _ in 0..100 {
                    ring.add(groups[writer % 4], 1);
                }
            });
        }
    });
    groups
        .iter()
        .for_each(|group| assert_eq!(ring.agree(*group), 200));
    let counts: Vec<_> = ring
        .nodes
        .values()
        .map(|node| *node.log.counts.lock())
        .collect();
    assert!(
        counts.iter().any(|(writes, orders)| orders > writes),
        "{counts:?}"
    );
}

#[test]
fn a_group_survives_restarts_of_its_leader() {
    let mut ring = Ring::new(3, 1);
    let (mut least, mut most) = (0, 0);
    for round in 0..3 {
        for _ in 0..100 {
            let (_, uncertain) = ring.add(GROUP, 1);
            (least, most) = (least + 1, most + 1 + uncertain);
        }
        let gone = ring.leader(GROUP);
        ring.stop(gone);
        for _ in 0..30 {
            let (_, uncertain) = ring.add(GROUP, 1);
            (least, most) = (least + 1, most + 1 + uncertain);
        }
        ring.start(gone);
        let sum = ring.agree(GROUP);
        assert!(
            (least..=most).contains(&sum),
            "round {round}: {least} <= {sum} <= {most}"
        );
    }
}

/// Adds 1 by entries of 100 KiB until the sum is 100. Returns the sum, and its upper limit, since
/// the outcome of an entry may be uncertain.
fn add_wide(ring: &Ring) -> (u64, u64) {
    let mut wide = vec![0; 100 << 10];
    wide[0] = 1;
    let (mut sum, mut uncertain) = (0, 0);
    while sum < 100 {
        let leader = ring.leader(GROUP);
        match ring.try_write(leader, GROUP, wide.clone().into()) {
            Some(Ok(now)) => sum = now,
            Some(Err(Refusal::Uncertain)) => uncertain += 1,
            _ => {}
        }
    }
    (sum, sum + uncertain)
}

#[test]
fn a_replica_that_was_down_for_long_gets_a_copy() {
    let mut ring = Ring::new(3, 1);
    let away = *ring
        .nodes
        .keys()
        .find(|node| **node != ring.leader(GROUP))
        .unwrap();
    ring.stop(away);
    // More than is retained for peers that lag.
    let (sum, most) = add_wide(&ring);
    let begins = |node| ring.nodes[&node].log.groups.lock()[&GROUP].before.index;
    // Either of the others may become the leader.
    let others: Vec<_> = ring.nodes.keys().filter(|node| **node != away).collect();
    wait_for("the logs begin later", || {
        others.iter().all(|node| begins(**node) > 50)
    });
    ring.start(away);
    let agreed = ring.agree(GROUP);
    assert!(
        (sum..=most).contains(&agreed),
        "{sum} <= {agreed} <= {most}"
    );
    let before = ring.nodes[&away].log.groups.lock()[&GROUP].before.index;
    assert!(before > 50, "its log begins behind a copy: {before}");
}

#[test]
fn a_replica_that_was_down_gets_entries_that_memory_no_longer_has() {
    let mut ring = Ring::new(3, 1);
    ring.add(GROUP, 1);
    ring.nodes
        .values()
        .for_each(|node| *node.log.keeps_all.lock() = true);
    let away = *ring
        .nodes
        .keys()
        .find(|node| **node != ring.leader(GROUP))
        .unwrap();
    ring.stop(away);
    let (sum, most) = add_wide(&ring);
    SystemClock.sleep(Duration::from_millis(1500));
    ring.start(away);
    let agreed = ring.agree(GROUP);
    assert!(
        (sum..=most).contains(&agreed),
        "{sum} <= {agreed} <= {most}"
    );
    let kept = ring.nodes[&away].log.groups.lock()[&GROUP].before.index;
    assert_eq!(kept, 1, "no copy was installed");
    let reads: u64 = ring
        .nodes
        .values()
        .map(|node| *node.log.tail_reads.lock())
        .sum();
    assert!(reads >= 5, "{reads}");
}

#[test]
fn a_full_log_ends_a_lead_and_a_broken_log_ends_the_replica() {
    let ring = Ring::new(3, 1);
    ring.add(GROUP, 1);
    let first = ring.leader(GROUP);
    *ring.nodes[&first].log.is_full.lock() = true;
    let (reported, outcome) = std::sync::mpsc::channel();
    let host = ring.nodes[&first].host.clone().unwrap();
    let done = Box::new(move |outcome| drop(reported.send(outcome)));
    host.propose(GROUP, 1_u64.to_le_bytes().to_vec().into(), done);
    wait_for("another leader", || ring.leader(GROUP) != first);
    ring.add(GROUP, 1);
    *ring.nodes[&first].log.is_full.lock() = false;
    // No other node had logged the proposal: its client learns that the outcome is uncertain.
    let outcome = outcome.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(
        matches!(outcome, Err(Refusal::Uncertain | Refusal::NotLeader(_))),
        "{outcome:?}"
    );
    let mut sum = ring.agree(GROUP);
    let second = ring.leader(GROUP);
    *ring.nodes[&second].log.is_broken.lock() = true;
    let refused = ring.try_add(second, GROUP, 1).unwrap();
    assert_eq!(refused, Err(Refusal::Uncertain));
    assert!(ring.facts(second, GROUP).unwrap().halted.is_some());
    wait_for("another leader", || ring.leader(GROUP) != second);
    // The others had received it already.
    sum += 2;
    let (now, uncertain) = ring.add(GROUP, 1);
    assert!((sum - 1..=sum + uncertain).contains(&now), "{now}");
}

#[test]
fn a_state_without_disk_space_applies_later_and_reads_wait() {
    let ring = Arc::new(Ring::new(3, 1));
    ring.add(GROUP, 5);
    let leader = ring.leader(GROUP);
    *ring.nodes[&leader].states[&GROUP].is_full.lock() = true;
    let (is_read, is_added) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ring.add(GROUP, 1);
            is_added.store(true, Ordering::SeqCst);
        });
        SystemClock.sleep(Duration::from_millis(300));
        scope.spawn(|| is_read.store(ring.read(leader, GROUP).unwrap_or(0), Ordering::SeqCst));
        SystemClock.sleep(Duration::from_millis(300));
        assert!(
            !is_added.load(Ordering::SeqCst),
            "the write is decided but not applied"
        );
        assert_eq!(
            is_read.load(Ordering::SeqCst),
            0,
            "the read waits for the decided write"
        );
        *ring.nodes[&leader].states[&GROUP].is_full.lock() = false;
    });
    assert_eq!(is_read.load(Ordering::SeqCst), 6);
}

#[test]
fn a_follower_without_peers_answers_stale_reads_only_within_the_bound() {
    let mut ring = Ring::new(3, 1);
    let sum = ring.add(GROUP, 5).0;
    let leader = ring.leader(GROUP);
    let follower = *ring.nodes.keys().find(|node| **node != leader).unwrap();
    let bound = Duration::from_secs(5);
    // Nothing was confirmed yet, so the read asks the leader.
    wait_for("a read at a follower", || {
        ring.read_within(follower, GROUP, bound) == Some(sum)
    });
    let confirmed = SystemClock.monotonic();
    let others: Vec<_> = ring.nodes.keys().copied().collect();
    for other in others.into_iter().filter(|node| *node != follower) {
        ring.stop(other);
    }
    assert_eq!(ring.read_within(follower, GROUP, bound), Some(sum));
    assert_eq!(
        ring.read(follower, GROUP),
        None,
        "the follower reaches no majority"
    );
    assert_eq!(ring.read_within(follower, GROUP, bound), Some(sum));
    while SystemClock.monotonic() < confirmed + bound {
        SystemClock.sleep(Duration::from_millis(50));
    }
    assert_eq!(ring.read_within(follower, GROUP, bound), None);
}

#[test]
fn stale_reads_see_each_write_within_the_bound() {
    let ring = Ring::new(3, 1);
    let bound = Duration::from_millis(400);
    ring.add(GROUP, 1);
    let leader = ring.leader(GROUP);
    let follower = *ring.nodes.keys().find(|node| **node != leader).unwrap();
    for _ in 0..20 {
        let sum = ring.add(GROUP, 1).0;
        let written = SystemClock.monotonic();
        wait_for("the write is seen", || {
            let begun = SystemClock.monotonic();
            let read = ring.read_within(follower, GROUP, bound);
            let is_late = begun >= written + bound;
            assert!(
                !is_late || read.is_none_or(|read| read >= sum),
                "{read:?} is older than the bound: {sum} was written"
            );
            read == Some(sum)
        });
    }
}

#[test]
fn a_long_log_is_shortened() {
    let ring = Ring::new(3, 1);
    let mut sum = 0;
    for _ in 0..200 {
        sum = ring.add(GROUP, 1).0;
    }
    let length = || {
        let logs = ring.nodes.values().map(|node| &node.log.groups);
        let lengths = logs.map(|groups| groups.lock()[&GROUP].entries.len());
        lengths.max().unwrap()
    };
    wait_for("short logs", || length() <= 40);
    assert_eq!(ring.agree(GROUP), sum);
}
