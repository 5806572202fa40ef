//! Looks up many keys at once.
//!
//! A look-up in memory mostly waits: for the index, for the page's header, then for the record. A
//! batch makes four passes over its keys, so that their waits overlap:
//!
//! 1. [`Run::approach`] starts to fetch the index's entry.
//! 2. [`Run::ahead`] finds the key's page by it and starts to fetch the page's header.
//! 3. [`Ahead::match_records`] matches fingerprints and starts to fetch the record.
//! 4. [`Run::visit_from`] compares keys and answers.

use crate::error::Result;
use crate::page::{Glance, Page};
use crate::record::FoundRecord;
use crate::run::{Index, Lookup, Run};

/// The best number of concurrent look-ups.
pub const BATCH: usize = 16;

/// A look-up in progress: its only page, and the page's records that may match.
#[derive(Debug, Clone, Copy)]
pub struct Ahead<'a> {
    page: Page<'a>,
    /// The result of [`Page::candidates`]; `None` before the third pass.
    candidates: Option<(u64, usize)>,
}

impl Ahead<'_> {
    /// Does the third pass; waits for the page's header.
    #[inline]
    pub fn match_records(&mut self, hash: u64) {
        // The last pass reports a damaged page.
        let Ok((mask, records)) = self.page.candidates(hash as u8) else {
            return;
        };
        self.candidates = Some((mask, records));
        if mask != 0 {
            self.page
                .prefetch_slot(mask.trailing_zeros() as usize, records);
        }
    }
}

impl Run {
    /// Does the first pass.
    #[inline]
    pub fn approach(&self, hash: u64) {
        if let Index::Hashed(index) = &self.index {
            index.prefetch(hash);
        }
    }

    /// Does the second pass. Returns `None` in ordered runs, for pages not known to be in memory,
    /// and for the rare hash that several pages may contain.
    #[inline]
    pub fn ahead(&self, hash: u64) -> Option<Ahead<'_>> {
        let Index::Hashed(index) = &self.index else {
            return None;
        };
        let pages = index.pages(hash);
        let number = pages.start;
        let page = Page::new(self.pages.in_place(number).filter(|_| pages.len() == 1)?);
        page.prefetch_header();
        Some(Ahead {
            page,
            candidates: None,
        })
    }

    /// Does the last pass: [`Run::visit`], continued from `ahead`.
    #[inline]
    pub fn visit_from<'a, R>(
        &'a self,
        ahead: Option<Ahead<'a>>,
        hash: u64,
        key: &[u8],
        visit: impl FnOnce(FoundRecord<'a>) -> R,
    ) -> Result<Option<R>> {
        match self.look_from(ahead, key) {
            Glance::Whole(tag, payload) => Ok(Some(visit(FoundRecord::plain(tag, payload)))),
            Glance::Absent => Ok(None),
            Glance::Unsure => self.visit(hash, key, visit),
        }
    }

    /// Does [`Run::try_get`], continued from `ahead`.
    #[inline]
    pub fn try_get_from<'a>(
        &'a self,
        ahead: Option<Ahead<'a>>,
        hash: u64,
        key: &[u8],
    ) -> Result<Lookup<'a>> {
        match self.look_from(ahead, key) {
            Glance::Whole(tag, payload) => Ok(Lookup::Found(FoundRecord::plain(tag, payload))),
            Glance::Absent => Ok(Lookup::Absent),
            Glance::Unsure => self.try_get(hash, key),
        }
    }

    #[inline(always)]
    fn look_from<'a>(&'a self, ahead: Option<Ahead<'a>>, key: &[u8]) -> Glance<'a> {
        match ahead {
            Some(Ahead {
                page,
                candidates: Some(candidates),
            }) => self.glance(&page, candidates, key),
            _ => Glance::Unsure,
        }
    }

    /// Looks up many keys and calls `answer` for each in order. Each key has its hash64 as in
    /// [`Run::get`].
    pub fn get_many<'a>(
        &'a self,
        keys: &[(u64, &[u8])],
        mut answer: impl FnMut(usize, Result<Option<FoundRecord<'a>>>),
    ) {
        for (chunk, keys) in keys.chunks(BATCH).enumerate() {
            keys.iter().for_each(|(hash, _)| self.approach(*hash));
            let mut ahead = [None; BATCH];
            for (ahead, (hash, _)) in ahead.iter_mut().zip(keys) {
                *ahead = self.ahead(*hash);
            }
            for (ahead, (hash, _)) in ahead.iter_mut().zip(keys) {
                ahead
                    .iter_mut()
                    .for_each(|ahead| ahead.match_records(*hash));
            }
            for (place, ((hash, key), ahead)) in keys.iter().zip(ahead).enumerate() {
                let found = self.visit_from(ahead, *hash, key, |found| found);
                answer(chunk * BATCH + place, found);
            }
        }
    }
}
