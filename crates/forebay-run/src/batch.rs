//! Look-ups of many keys at once.
//!
//! A look-up in memory mostly waits: for the page's header, then for the record. A batch takes three
//! passes over its keys, so that their waits overlap: [`Run::ahead`] finds a key's page and starts to
//! fetch its header; [`Ahead::match_records`] matches fingerprints and starts to fetch the record;
//! [`Run::get_from`] compares keys and answers.

use crate::error::Result;
use crate::operation::CowOperation;
use crate::page::Page;
use crate::run::{Index, Lookup, Run};

/// How many look-ups are best under way together.
pub const BATCH: usize = 16;

/// A look-up on its way: its only page, and which of the page's records may be the one.
#[derive(Debug, Clone, Copy)]
pub struct Ahead<'a> {
    number: usize,
    page: Page<'a>,
    /// As [`Page::candidates`] gives them; none before the second pass.
    candidates: Option<(u64, usize)>,
}

impl Ahead<'_> {
    /// The second pass; waits for the page's header.
    #[inline]
    pub fn match_records(&mut self, hash: u64) {
        // A damaged page is told of by the third pass.
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
    /// The first pass. `None` in ordered runs, for pages not known to be in memory, and for the rare
    /// hash that several pages may hold.
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
            number,
            page,
            candidates: None,
        })
    }

    /// The third pass: [`Run::get`], going on from where `ahead` has come.
    #[inline]
    pub fn get_from<'a>(
        &'a self,
        ahead: Option<Ahead<'a>>,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<CowOperation<'a>>> {
        self.look_up_from(ahead, hash, key, true).map(Lookup::found)
    }

    /// [`Run::get_from`] that never waits for the device.
    #[inline]
    pub fn try_get_from<'a>(
        &'a self,
        ahead: Option<Ahead<'a>>,
        hash: u64,
        key: &[u8],
    ) -> Result<Lookup<'a>> {
        self.look_up_from(ahead, hash, key, false)
    }

    #[inline]
    fn look_up_from<'a>(
        &'a self,
        ahead: Option<Ahead<'a>>,
        hash: u64,
        key: &[u8],
        wait: bool,
    ) -> Result<Lookup<'a>> {
        let Some(Ahead {
            number,
            page,
            candidates: Some(candidates),
        }) = ahead
        else {
            return self.look_up(hash, key, wait);
        };
        let found = page.find_among(candidates, hash as u8, key);
        let found = found.map_err(|what| self.pages.damaged(number, what))?;
        self.answer(number, found, wait)
    }

    /// Looks up many keys; calls `answer` for each in order. Each key comes with its hash64 as in
    /// [`Run::get`].
    pub fn get_many<'a>(
        &'a self,
        keys: &[(u64, &[u8])],
        mut answer: impl FnMut(usize, Result<Option<CowOperation<'a>>>),
    ) {
        for (chunk, keys) in keys.chunks(BATCH).enumerate() {
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
                answer(chunk * BATCH + place, self.get_from(ahead, *hash, key));
            }
        }
    }
}
