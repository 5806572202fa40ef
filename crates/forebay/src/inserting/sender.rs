//! One client of an insert: sends a request, and resends its rows until all are acknowledged.
//!
//! A row that sets or deletes its key may be resent whatever happened to it: the key has the same
//! value afterwards. A delta may be resent only if it is known that it was not added.

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

/// The pause before rows are sent again.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A client that sends batches until all rows are written.
pub struct RowSender<'a, X> {
    pub insertion: &'a Insertion<'a>,
    pub exchange: X,
}

/// A row of a batch that is not written yet, and its node, if an answer named one.
type LeftRow = (usize, Option<HostPort>);

/// The result of one round.
#[derive(Default)]
struct Round {
    left: Vec<LeftRow>,
    /// Why rows are left, if not because of a redirect.
    why: Option<String>,
    /// Rows that may not be resent, and why their outcome is unknown.
    uncertain: Vec<(usize, String)>,
    /// A row that its node refuses.
    refused: Option<(usize, String)>,
    /// Why a node refuses the login.
    not_let_in: Option<String>,
}

impl<X: Exchange> RowSender<'_, X> {
    /// Sends a batch, and returns when all its rows are written. REQUIRES: no two have the same
    /// key.
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
            // If no node answers now, the next round asks again.
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

    /// Sends the remaining rows, each to the node that leads its partition.
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

    /// Returns the round, unless it ends the insert.
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

    /// Handles a node's answers.
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

/// Returns whether a node supports the command that writes rows.
pub fn knows_writes(answer: &RespAnswer) -> bool {
    match answer {
        RespAnswer::Array(commands) => !matches!(commands[..], [RespAnswer::Null] | []),
        _ => true,
    }
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
