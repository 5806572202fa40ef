//! One client of an insert: it sends a request, and sends again what was not written, until all of
//! it is acknowledged.
//!
//! A row that sets or deletes its key may be sent again whatever became of it: the key comes to the
//! same. A delta may not where it is not known that it was not added.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_cluster::HostPort;

use super::batch::RowBatch;
use super::error::{InsertError, KeyRange, UnknownRows};
use super::insertion::Insertion;
use super::resp::RespAnswer;
use super::routes::RowRoutes;
use super::verdict::Verdict;
use super::wire::{Exchange, NodeAnswers, NodeCommands, WireFailure};

/// Before rows are sent again.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// See the module's text.
pub struct RowSender<'a, X> {
    pub insertion: &'a Insertion<'a>,
    pub exchange: X,
}

/// A row of a batch that is to be sent, and where, if somebody said.
type LeftRow = (usize, Option<HostPort>);

/// What one round came to.
#[derive(Default)]
struct Round {
    left: Vec<LeftRow>,
    /// Why some are left, if not because they were led elsewhere.
    why: Option<String>,
    /// Rows that may not be sent again, and why nobody knows what became of them.
    uncertain: Vec<(usize, String)>,
    /// A row that its node does not take.
    refused: Option<(usize, String)>,
    /// A node lets nobody in.
    not_let_in: Option<String>,
}

impl<X: Exchange> RowSender<'_, X> {
    /// Returns when all rows of the batch are written. REQUIRES: no two have the same key.
    pub fn send(&mut self, batch: &RowBatch) -> Result<(), InsertError> {
        let insertion = self.insertion;
        insertion.throttle.take(batch.bytes());
        let mut left: Vec<LeftRow> = (0..batch.rows.len()).map(|row| (row, None)).collect();
        let (mut pause, mut since) = (PAUSE, insertion.clock.monotonic());
        let mut is_first = true;
        while !left.is_empty() {
            if insertion.is_over() {
                let inserted = insertion.inserted();
                return Err(InsertError::InsertStopped { inserted });
            }
            let (number, routes) = insertion.routes.now();
            let before = left.len();
            let round = self.round(batch, left, &routes, is_first)?;
            (left, is_first) = (round.left, false);
            if left.is_empty() {
                break;
            }
            let now = insertion.clock.monotonic();
            if left.len() < before {
                (pause, since) = (PAUSE, now);
            }
            if let Some(why) = round.why {
                self.wait(now.saturating_sub(since), pause, why)?;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
            // Who cannot tell just now is asked again after the next round.
            _ = insertion.routes.renew(number, &mut self.exchange);
        }
        Ok(())
    }

    fn wait(&self, waited: Duration, pause: Duration, why: String) -> Result<(), InsertError> {
        let insertion = self.insertion;
        if waited >= insertion.patience {
            return Err(InsertError::NoProgress {
                seconds: waited.as_secs(),
                words: why,
                inserted: insertion.inserted(),
            });
        }
        insertion.announce_waiting(waited, &why);
        insertion.clock.sleep(pause);
        Ok(())
    }

    /// Sends the rows that are left, each to the node that leads its partition.
    fn round(
        &mut self,
        batch: &RowBatch,
        left: Vec<LeftRow>,
        routes: &RowRoutes,
        is_first: bool,
    ) -> Result<Round, InsertError> {
        let mut round = Round::default();
        let mut nodes: BTreeMap<HostPort, Vec<usize>> = BTreeMap::new();
        for (row, target) in left {
            let holders = routes.nodes(&batch.rows[row].key);
            let target = target.or_else(|| self.insertion.routes.best(holders).cloned());
            match target {
                Some(node) => nodes.entry(node).or_default().push(row),
                None => {
                    round.why = Some("no node that is up has the partition of its key".to_owned());
                    round.left.push((row, None));
                }
            }
        }
        let commands: Vec<NodeCommands> = nodes.iter().map(|of| commands(batch, of)).collect();
        let answers = self.exchange.exchange(&commands);
        let again = if is_first {
            0
        } else {
            nodes.values().map(Vec::len).sum()
        };
        self.insertion.count_requests(commands.len(), again);
        for ((node, rows), answers) in nodes.iter().zip(answers) {
            self.take(batch, (node, rows), answers, &mut round);
        }
        round.left.sort_unstable_by_key(|(row, _)| *row);
        self.checked(batch, round)
    }

    /// The round, unless it ends the insert.
    fn checked(&self, batch: &RowBatch, mut round: Round) -> Result<Round, InsertError> {
        let inserted = self.insertion.inserted();
        round.uncertain.sort_unstable_by_key(|(row, _)| *row);
        let key = |row: usize| batch.rows[row].key.clone();
        if let [(first, words), ..] = &round.uncertain[..] {
            let rows = round.uncertain.len();
            let last = key(round.uncertain[rows - 1].0);
            let first = key(*first);
            return Err(InsertError::Uncertain {
                keys: UnknownRows(vec![KeyRange { rows, first, last }]),
                words: words.clone(),
                inserted,
            });
        }
        match (round.not_let_in.take(), round.refused.take()) {
            (Some(words), _) => Err(InsertError::NotLetIn { words, inserted }),
            (None, Some((row, words))) => Err(InsertError::RowRefused {
                key: key(row),
                words,
                inserted,
            }),
            (None, None) => Ok(round),
        }
    }

    /// Takes what a node answers.
    fn take(
        &self,
        batch: &RowBatch,
        (node, rows): (&HostPort, &[usize]),
        answers: NodeAnswers,
        round: &mut Round,
    ) {
        let insertion = self.insertion;
        let (answers, rest) = match answers {
            Ok(answers) => (answers, None),
            Err(WireFailure::Refused(words)) => {
                round.not_let_in = Some(words);
                return;
            }
            Err(WireFailure::Unreached(words)) => {
                insertion.routes.suspect(node);
                (Vec::new(), Some(Verdict::NotWritten(words)))
            }
            Err(WireFailure::Broken(answers, words)) => {
                insertion.routes.suspect(node);
                (answers, Some(Verdict::Unknown(words)))
            }
        };
        let mut written = 0;
        for (at, row) in rows.iter().enumerate() {
            let verdict = match (answers.get(at), &rest) {
                (Some(answer), _) => Verdict::of(answer),
                (None, Some(rest)) => rest.clone(),
                (None, None) => Verdict::Unknown(format!("{node} answered too little")),
            };
            let sent = &batch.rows[*row];
            match verdict {
                Verdict::Done => {
                    insertion.count(sent);
                    written += 1;
                }
                Verdict::Moved(target) => round.left.push((*row, Some(target))),
                Verdict::NotWritten(words) => {
                    round.why.get_or_insert(words);
                    round.left.push((*row, None));
                }
                Verdict::Unknown(words) if sent.verb.is_repeatable() => {
                    round.why.get_or_insert(words);
                    round.left.push((*row, None));
                }
                Verdict::Unknown(words) => round.uncertain.push((*row, words)),
                Verdict::Refused(words) => {
                    let is_login = words.starts_with("NOPERM ") || words.starts_with("NOAUTH ");
                    let words = format!("{node}: {words}");
                    match is_login {
                        true => round.not_let_in = Some(words),
                        false => _ = round.refused.get_or_insert((*row, words)),
                    }
                }
            }
        }
        insertion.progress.advance(written);
    }
}

fn commands(batch: &RowBatch, (node, rows): (&HostPort, &Vec<usize>)) -> NodeCommands {
    let commands: Vec<&[u8]> = rows.iter().map(|row| batch.command(*row)).collect();
    NodeCommands {
        node: node.clone(),
        bytes: commands.concat(),
        count: rows.len(),
    }
}

/// Whether a node knows the command that rows are written by.
pub fn knows_writes(answer: &RespAnswer) -> bool {
    match answer {
        RespAnswer::Array(commands) => !matches!(commands[..], [RespAnswer::Null] | []),
        _ => true,
    }
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
