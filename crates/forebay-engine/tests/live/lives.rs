//! Random lives of tables: every operation, in any order, with all ends of a process.

use std::ops::Bound;

use forebay_engine::live::{LiveError, Snapshot};
use forebay_io::sim::Rng;
use forebay_run::Order;
use forebay_run::format::MAX_KEY_BYTES;

use crate::live::for_seeds;
use crate::live::history::{Map, Op};
use crate::live::life::{
    DURABILITIES, KINDS, Life, batch, check_snapshot, keys, op, options, value,
};
use crate::live::one_of;

const STEPS: u64 = 120;

/// A bound at some key.
fn bound<'a>(rng: &mut Rng, keys: &'a [Vec<u8>]) -> Bound<&'a [u8]> {
    let key = &keys[rng.below(keys.len() as u64) as usize];
    match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

/// Tries operations that no table accepts; they change nothing.
fn refused(life: &mut Life, rng: &mut Rng) {
    let kind = life.options.delta;
    let table = &life.table;
    match rng.below(5) {
        0 => assert!(matches!(
            table.update(b"", b"12345678"),
            Err(LiveError::Key { .. })
        )),
        1 => {
            let refused = table.delete(&[b'k'; MAX_KEY_BYTES + 1]);
            assert!(matches!(refused, Err(LiveError::Key { .. })));
        }
        2 if kind.is_none() => {
            assert!(matches!(
                table.delta(b"k", b"1"),
                Err(LiveError::NoDelta { .. })
            ));
        }
        2 => {}
        3 => {
            let wrong = table.delta(b"k1", b"123456789").map(|_| ());
            match kind {
                None => assert!(matches!(wrong, Err(LiveError::NoDelta { .. }))),
                Some(forebay_run::operation::DeltaKind::Append) => {
                    wrong.unwrap();
                    let delta = b"123456789".to_vec();
                    life.history.wrote(vec![Op::Delta(b"k1".to_vec(), delta)]);
                }
                Some(_) => assert!(matches!(wrong, Err(LiveError::Operand { .. }))),
            }
        }
        _ => {
            let keys = keys();
            let other = keys
                .iter()
                .find(|key| table.partition_of(key) != table.partition_of(&keys[0]));
            let unit = [&keys[0], other.unwrap()]
                .map(|key| Op::Delete(key.clone()))
                .to_vec();
            let refused = table.write(&batch(&unit));
            assert!(matches!(refused, Err(LiveError::AcrossPartitions { .. })));
        }
    }
}

fn some_batch(life: &Life, rng: &mut Rng) -> Vec<Op> {
    let kind = life.options.delta;
    let first = op(rng, kind);
    let partition = life.table.partition_of(first.key());
    let mut unit = vec![first];
    for _ in 0..rng.below(8) {
        let next = op(rng, kind);
        if life.table.partition_of(next.key()) == partition {
            unit.push(next);
        }
    }
    unit
}

/// Ends the process, in one way or another.
fn end(life: &mut Life, rng: &mut Rng, words: &str) {
    let logged = life.options.durability.is_some();
    match rng.below(4) {
        0 => {
            let disk = life.disk.clone();
            // The old table has to be gone before the new one is opened.
            let other = Life::new(life.draft()).table;
            drop(std::mem::replace(&mut life.table, other));
            life.reopen_on(disk, !logged, &format!("{words}, closed"));
        }
        1 => {
            let disk = life.disk.after_kill();
            life.reopen_on(disk, !logged, &format!("{words}, killed"));
        }
        _ => {
            let disk = life.disk.after_power_cut(rng.next_u64());
            life.reopen_on(disk, true, &format!("{words}, power cut"));
        }
    }
}

fn step(life: &mut Life, rng: &mut Rng, held: &mut Vec<(Snapshot, Map)>, words: &str) {
    let kind = life.options.delta;
    let keys = keys();
    let any = |rng: &mut Rng| keys[rng.below(keys.len() as u64) as usize].clone();
    match rng.below(104) {
        100..103 => life.split(rng).unwrap(),
        103 => life.move_away_and_back(rng),
        0..50 => {
            let op = op(rng, kind);
            life.write(op, rng.below(3) > 0).unwrap();
        }
        50..60 => {
            let unit = some_batch(life, rng);
            life.write_batch(unit, rng.below(3) > 0).unwrap();
        }
        60..64 => {
            let absent = value(rng, kind);
            life.modify(&any(rng), &absent).unwrap();
        }
        64..68 => {
            let (a, b) = (any(rng), any(rng));
            if a != b {
                life.swap(&a, &b).unwrap();
            }
        }
        68 if rng.below(5) == 0 => life.delete_all().unwrap(),
        68..70 => {
            let range = (bound(rng, &keys), bound(rng, &keys));
            let deleted = life.delete_range(range, rng.below(2) == 0);
            match life.options.order {
                Order::Ordered => deleted.unwrap(),
                Order::Hashed => assert!(matches!(deleted, Err(LiveError::NoKeyOrder { .. }))),
            }
        }
        70..72 => refused(life, rng),
        72..77 => life.flush().unwrap(),
        77..78 => life.compact().unwrap(),
        78..81 => {
            let ops = (0..1 + rng.below(30)).map(|_| op(rng, kind)).collect();
            life.ingest(ops).unwrap();
        }
        81..85 => {
            if held.len() == 3 {
                let (snapshot, then) = held.remove(rng.below(3) as usize);
                check_snapshot(&snapshot, &then, &format!("{words}, a snapshot of before"));
            }
            held.push((life.table.snapshot(), life.history.now().clone()));
        }
        85..90 => {
            let (from, to) = (bound(rng, &keys), bound(rng, &keys));
            let limit = one_of(rng, &[0, 1, 5, 1000]);
            life.scan(from, to, limit, words);
        }
        90..97 => {
            let key = any(rng);
            let expected = life.history.now().get(&key).cloned();
            assert_eq!(life.table.get(&key).unwrap(), expected, "{words}: {key:?}");
        }
        _ => end(life, rng, words),
    }
}

fn live(seed: u64) {
    let mut rng = Rng(seed);
    let order = one_of(&mut rng, &[Order::Hashed, Order::Ordered]);
    let kind = one_of(&mut rng, &KINDS);
    let durability = one_of(&mut rng, &DURABILITIES);
    let mut life = Life::new(options(order, kind, durability));
    let mut held = Vec::new();
    for at in 0..STEPS {
        let words = format!("seed {seed}, {order:?}, {kind:?}, {durability:?}, step {at}");
        step(&mut life, &mut rng, &mut held, &words);
    }
    let words = format!("seed {seed}, {order:?}, {kind:?}, {durability:?}, at the end");
    life.check(&words);
    for (snapshot, then) in held {
        check_snapshot(&snapshot, &then, &words);
    }
    end(&mut life, &mut rng, &words);
}

#[test]
fn tables_agree_with_a_map_through_random_lives() {
    for_seeds(150, live);
}
