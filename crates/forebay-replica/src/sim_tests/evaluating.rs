//! Leaders that evaluate commands and propose their effects, as the server does.

use super::model::{Answer, Op};
use super::world::{Life, World};
use crate::basis::NewProposal;
use crate::entry::Proposal;
use crate::events::{Event, Refusal};
use crate::ids::RequestId;
use crate::pending::PendingValue;

/// An effect, and the answer to the client.
struct Evaluated {
    effect: Op,
    value: Option<PendingValue<i64>>,
    answer: Answer,
}

impl World {
    /// Proposes a client's write: as it is, or evaluated on this process.
    pub fn propose(&mut self, life: Life, request: RequestId, (key, op): (u8, Op)) {
        let evaluates = self.evaluates;
        let is_barrier = evaluates && matches!(op, Op::Increase(_)) && self.chance(300);
        let (effect, basis) = match evaluates && !is_barrier {
            false => (op.encode(key), None),
            true => match self.evaluate(life, request, (key, op)) {
                Ok((effect, basis)) => (effect.encode(key), Some(basis)),
                Err(why) => return self.refused(life, request, why),
            },
        };
        let proposal = Proposal { request, effect };
        let new = NewProposal {
            proposal,
            basis,
            is_barrier,
        };
        if !evaluates {
            return self.notify(life, Event::Propose(vec![new]));
        }
        // The process proposes in the order in which it evaluated, and other events come between.
        let delay = self.between(0, 500);
        if let Some(process) = self.process(life) {
            process.evaluated.push_back(new);
        }
        self.after(delay, move |world| {
            world.on_host(life, move |world| {
                let process = world.process(life);
                if let Some(new) = process.and_then(|process| process.evaluated.pop_front()) {
                    world.notify(life, Event::Propose(vec![new]));
                }
            });
        });
    }

    fn evaluate(
        &mut self,
        life: Life,
        request: RequestId,
        (key, op): (u8, Op),
    ) -> Result<(Op, u64), Refusal> {
        let Some(process) = self.process(life) else {
            return Err(Refusal::NotLeader(None));
        };
        let leader = process.replica.leader();
        let Some(basis) = process.replica.basis() else {
            return Err(Refusal::NotLeader(
                leader.filter(|peer| *peer != process.replica.me()),
            ));
        };
        if process.applied.place.index < basis.index {
            return Err(Refusal::Outdated);
        }
        process.pending.begin(basis.number);
        let pending = process.pending.get(&[key]).cloned();
        let evaluated = match op {
            // Effects that depend on no value.
            Op::Increase(_) | Op::SetFor(..) => Evaluated {
                effect: op,
                value: Some(PendingValue::Unknown),
                answer: Answer::Done(true),
            },
            op => {
                let value = match pending {
                    Some(PendingValue::Present(value)) => Some(value),
                    Some(PendingValue::Absent) => None,
                    Some(PendingValue::Unknown) => return Err(Refusal::Outdated),
                    None => match self.store(life).map(|store| store.get(key)) {
                        Some(Ok(value)) => value,
                        _ => return Err(Refusal::Outdated),
                    },
                };
                evaluate(op, value)
            }
        };
        let Some(process) = self.process(life) else {
            return Err(Refusal::NotLeader(None));
        };
        if let Some(value) = evaluated.value {
            process.pending.set(request, &[key], value);
        }
        process.answers.insert(request, evaluated.answer);
        self.count("evaluations");
        Ok((evaluated.effect, basis.number))
    }

    /// Returns the answer to an applied proposal.
    pub fn answer_of(&mut self, life: Life, request: RequestId, applied: Answer) -> Answer {
        let Some(process) = self.process(life) else {
            return applied;
        };
        process.pending.applied(request);
        process.answers.remove(&request).unwrap_or(applied)
    }
}

fn evaluate(op: Op, value: Option<i64>) -> Evaluated {
    let (new, answer) = op.apply(value);
    let (effect, value) = match new {
        _ if new == value => (Op::Get, None),
        Some(new) => (Op::Set(new), Some(PendingValue::Present(new))),
        None => (Op::Delete, Some(PendingValue::Absent)),
    };
    Evaluated {
        effect,
        value,
        answer,
    }
}
