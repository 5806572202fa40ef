//! Selects the reports that a node sends with its heartbeats.
//!
//! A heartbeat carries the reports that changed since the coordinator last acknowledged them, and a
//! few of the others in turn. Each report is sent about once a minute. So a thousand idle groups
//! cost some kilobytes a second.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use crate::time::Now;

/// The maximum number of reports of a kind in a heartbeat.
pub const MOST_REPORTS: usize = 128;
/// The time after which an unchanged report is sent again.
const AGAIN: Duration = Duration::from_secs(60);

/// A report about one thing.
pub trait Report: Debug + Clone {
    type Place: Debug + Ord + Clone;

    fn place(&self) -> Self::Place;

    /// Returns whether the other report is close enough to this one to be no news.
    fn is_like(&self, other: &Self) -> bool;
}

/// The reports that a node has sent, and those that it still has to send.
#[derive(Debug)]
pub struct ReportQueue<R: Report> {
    all: BTreeMap<R::Place, ReportedItems<R>>,
    /// The heartbeat in progress, and the reports in it.
    under_way: Option<(u64, Vec<R::Place>)>,
    /// The term of the coordinator that has the reports.
    term: u64,
}

#[derive(Debug)]
struct ReportedItems<R> {
    report: R,
    /// When the coordinator acknowledged the report; none if it is news.
    reported: Option<Duration>,
}

impl<R: Report> Default for ReportQueue<R> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            under_way: None,
            term: 0,
        }
    }
}

impl<R: Report> ReportQueue<R> {
    /// Replaces the current reports of this node.
    pub fn replace(&mut self, reports: Vec<R>) {
        let mut before = std::mem::take(&mut self.all);
        for report in reports {
            let place = report.place();
            let known = before.remove(&place);
            let known = known.filter(|known| known.report.is_like(&report));
            if known.is_none()
                && let Some((_, places)) = &mut self.under_way
            {
                places.retain(|under_way| *under_way != place);
            }
            let reported = known.and_then(|known| known.reported);
            self.all.insert(place, ReportedItems { report, reported });
        }
    }

    /// Returns the reports for the heartbeat with this number, and the number of further reports
    /// that are news.
    pub fn next(&mut self, now: Now, seq: u64) -> (Vec<R>, usize) {
        let is_due =
            |reported: &ReportedItems<R>| reported.reported.is_none_or(|at| now.since(at) >= AGAIN);
        let mut due: Vec<_> = self
            .all
            .iter()
            .filter(|(_, reported)| is_due(reported))
            .collect();
        due.sort_by_key(|(_, reported)| reported.reported);
        let news = due
            .iter()
            .filter(|(_, reported)| reported.reported.is_none())
            .count();
        debug_assert!(
            news <= due.len(),
            "of {} reports {news} are news",
            due.len()
        );
        due.truncate(MOST_REPORTS);
        let reports = due
            .iter()
            .map(|(_, reported)| reported.report.clone())
            .collect();
        let places = due.iter().map(|(place, _)| (*place).clone()).collect();
        self.under_way = Some((seq, places));
        (reports, news.saturating_sub(MOST_REPORTS))
    }

    /// Returns whether there is news that no heartbeat has carried.
    pub fn has_news(&self) -> bool {
        let under_way = self.under_way.as_ref().map(|(_, places)| &places[..]);
        let is_reported = |place: &R::Place| under_way.is_some_and(|places| places.contains(place));
        let mut untold = self
            .all
            .iter()
            .filter(|(_, reported)| reported.reported.is_none());
        untold.any(|(place, _)| !is_reported(place))
    }

    /// Records that a coordinator of this term acknowledged the heartbeat. A coordinator of another
    /// term has no reports.
    pub fn noticed(&mut self, now: Now, seq: u64, term: u64) {
        if term != self.term {
            self.term = term;
            self.all
                .values_mut()
                .for_each(|reported| reported.reported = None);
        }
        let Some((_, places)) = self.under_way.take_if(|(under_way, _)| *under_way == seq) else {
            return;
        };
        for place in places {
            if let Some(reported) = self.all.get_mut(&place) {
                reported.reported = Some(now.monotonic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_replica::{GroupId, PeerId};

    use super::*;
    use crate::measures::reports::GroupReport;

    fn now(seconds: u64) -> Now {
        Now {
            monotonic: Duration::from_secs(seconds),
            unix_ms: 0,
        }
    }

    fn report(group: u64, term: u64) -> GroupReport {
        GroupReport {
            group: GroupId(group),
            peer: PeerId(1),
            term,
            problem: None,
            is_unhealthy: false,
            leads: None,
            leaderless: None,
            load: None,
            traffic: None,
        }
    }

    #[test]
    fn a_changed_report_is_sent_until_it_is_acknowledged() {
        let mut reporting = ReportQueue::default();
        reporting.replace(vec![report(1, 5), report(2, 5)]);
        assert!(reporting.has_news());
        assert_eq!(reporting.next(now(1), 10).0.len(), 2);
        assert!(!reporting.has_news(), "the heartbeat is in flight");
        // The heartbeat was lost.
        assert_eq!(reporting.next(now(2), 11).0.len(), 2);
        reporting.noticed(now(2), 11, 7);
        assert!(reporting.next(now(3), 12).0.is_empty());
        reporting.replace(vec![report(1, 5), report(2, 6)]);
        assert_eq!(reporting.next(now(4), 13).0, [report(2, 6)]);
        // The report changed again during the heartbeat.
        reporting.replace(vec![report(1, 5), report(2, 7)]);
        assert!(reporting.has_news());
        reporting.noticed(now(4), 13, 7);
        let (again, _) = reporting.next(now(5), 14);
        assert_eq!(again, [report(2, 7)]);
        reporting.noticed(now(5), 14, 7);
        // Another coordinator has no reports.
        assert!(reporting.next(now(6), 15).0.is_empty());
        reporting.noticed(now(6), 15, 8);
        assert_eq!(reporting.next(now(7), 16).0.len(), 2);
    }

    #[test]
    fn a_heartbeat_carries_a_bounded_number_of_reports_in_turn() {
        let mut reporting = ReportQueue::default();
        reporting.replace((0..300).map(|group| report(group, 1)).collect());
        let mut reported = std::collections::BTreeSet::new();
        for (seq, left) in [(1, 172), (2, 44), (3, 0)] {
            let (reports, more) = reporting.next(now(seq), seq);
            assert!(reports.len() <= MOST_REPORTS);
            assert_eq!(more, left);
            reported.extend(reports.iter().map(|report| report.group));
            reporting.noticed(now(seq), seq, 0);
        }
        assert_eq!(reported.len(), 300);
        assert!(reporting.next(now(4), 4).0.is_empty());
        assert_eq!(
            reporting.next(now(61), 5).0.len(),
            128,
            "all reports are sent again"
        );
    }
}
