//! Edits of a layout: another list for a part of a class, and the gain of that.

use super::board::{Board, Section};

/// The part of a class that gets another list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Span {
    Left,
    Right,
    Whole,
}

/// The places of a class that get another list, and the gain of the layout.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    pub from: usize,
    pub to: usize,
    pub gain: f64,
}

/// An edit of a class, with its new list.
#[derive(Debug, Clone)]
pub(super) struct Edit {
    pub section: usize,
    pub list: Vec<u32>,
    pub offer: Offer,
}

/// The gain of a layout for one class less of a node that heads too many.
const HEAD_TOO_MANY: f64 = 1e6;

impl Board<'_> {
    /// Returns the total cost of the layout, as the module describes.
    #[cfg(test)]
    pub fn pays(&self) -> f64 {
        let mut sum = self.sections.len() as f64 * self.prices.class;
        for prefix in 0..self.prefixes() {
            for node in 0..self.heads.len() as u32 {
                let far = self.deviation(prefix, node);
                sum += far * far / self.scale(prefix, node);
            }
        }
        for (index, section) in self.sections.iter().enumerate() {
            self.over_old(
                Span::Left,
                section.start..self.end(index),
                |from, to, old| {
                    sum += self.change_price(&section.list, old) * self.extent.width(from, to);
                },
            );
        }
        sum
    }

    /// Returns the part of the line that is copied from the old layout; each copy counts.
    pub fn copied(&self) -> f64 {
        let mut sum = 0.0;
        for (index, section) in self.sections.iter().enumerate() {
            let range = section.start..self.end(index);
            self.over_old(Span::Left, range, |from, to, old| {
                let fresh = section.list.iter().filter(|node| !old.contains(node));
                sum += fresh.count() as f64 * self.extent.width(from, to);
            });
        }
        sum
    }

    /// Returns the change in uneven loads when a width changes from one list to another: the first
    /// value times the width, and the second times its square.
    pub fn slopes(&self, from: &[u32], to: &[u32]) -> (f64, f64) {
        let (mut slope, mut square) = (0.0, 0.0);
        let mut change = |node: u32, prefixes: std::ops::Range<usize>, sign: f64| {
            for prefix in prefixes {
                slope += 2.0 * sign * self.deviation(prefix, node);
                square += self.scale(prefix, node);
            }
        };
        let all = self.prefixes();
        for (place, node) in from.iter().enumerate() {
            let now = to.iter().position(|other| other == node).unwrap_or(all);
            change(*node, place..now.max(place), -1.0);
        }
        for (place, node) in to.iter().enumerate() {
            let before = from.iter().position(|other| other == node).unwrap_or(all);
            change(*node, place..before.max(place), 1.0);
        }
        (slope, square)
    }

    /// Returns the cost of a list against the old one, for a width of 1.
    fn change_price(&self, list: &[u32], old: &[u32]) -> f64 {
        let copied = list.iter().filter(|node| !old.contains(node)).count();
        let mut price = self.prices.copied * copied as f64;
        if list.first() != old.first() {
            price += self.prices.primary;
        }
        let mut last = 0;
        for node in list {
            if let Some(place) = old.iter().position(|other| other == node) {
                if place < last {
                    price += self.prices.order;
                }
                last = place;
            }
        }
        price
    }

    /// Returns the old class at a place.
    fn old_at(&self, place: usize) -> usize {
        self.old.partition_point(|old| old.start <= place) - 1
    }

    /// Returns the best width of another list at an end of a class, or for the whole class, and the
    /// layout's gain. Returns none if heads or places allow no such change.
    ///
    /// `slopes` are [`Board::slopes`] of the two lists.
    pub fn consider(
        &self,
        section: usize,
        span: Span,
        list: &[u32],
        slopes: (f64, f64),
    ) -> Option<Offer> {
        let now = &self.sections[section];
        let (start, end) = (now.start, self.end(section));
        if now.list == list || (span != Span::Whole && end - start < 2) {
            return None;
        }
        let neighbour = |place: Option<usize>| {
            place
                .and_then(|place| self.sections.get(place))
                .is_some_and(|other| other.list == list)
        };
        let left = neighbour(section.checked_sub(1)) && span != Span::Right;
        let right = neighbour(Some(section + 1)) && span != Span::Left;
        let classes = f64::from(u8::from(span != Span::Whole))
            - f64::from(u8::from(left))
            - f64::from(u8::from(right));
        let heads = self.heads_change(section, span, list, [left, right])?;
        let fixed = classes * self.prices.class + heads;
        let (width_end, cost) = match span {
            Span::Whole => (end, self.cost_of(start, end, &now.list, list, slopes)),
            _ => self.best_width(span, start..end, &now.list, list, slopes)?,
        };
        let gain = -(cost + fixed);
        let (from, to) = match span {
            Span::Right => (width_end, end),
            _ => (start, width_end),
        };
        Some(Offer { from, to, gain })
    }

    /// Returns the price of the change of heads. Returns none if a node would head more than it
    /// may, and did not before.
    fn heads_change(
        &self,
        section: usize,
        span: Span,
        list: &[u32],
        joined: [bool; 2],
    ) -> Option<f64> {
        let before = self.sections[section].list[0] as usize;
        let after = list[0] as usize;
        let mut changes = [(before, 0i64), (after, 0i64)];
        if span == Span::Whole {
            changes[0].1 -= 1;
        }
        let joins = joined.iter().filter(|&&joined| joined).count() as i64;
        changes[1].1 += 1 - joins;
        if before == after {
            changes = [(before, changes[0].1 + changes[1].1), (before, 0)];
        }
        let mut price = 0.0;
        for (node, change) in changes {
            let most = i64::from(self.most_heads);
            let now = i64::from(self.heads[node]);
            let excess = (now + change - most).max(0) - (now - most).max(0);
            if excess > 0 {
                return None;
            }
            price += excess as f64 * HEAD_TOO_MANY;
        }
        Some(price)
    }

    fn cost_of(
        &self,
        start: usize,
        end: usize,
        now: &[u32],
        list: &[u32],
        (slope, square): (f64, f64),
    ) -> f64 {
        let width = self.extent.width(start, end);
        let mut cost = (slope + square * width) * width;
        self.over_old(Span::Left, start..end, |from, to, old| {
            let prices = self.change_price(list, old) - self.change_price(now, old);
            cost += prices * self.extent.width(from, to);
        });
        cost
    }

    /// Calls a function for each part of a range that was in one old class, from the side of the
    /// span.
    fn over_old(
        &self,
        span: Span,
        range: std::ops::Range<usize>,
        mut each: impl FnMut(usize, usize, &[u32]),
    ) {
        if self.old.is_empty() {
            return;
        }
        let (mut first, mut last) = (self.old_at(range.start), self.old_at(range.end - 1));
        loop {
            let index = if span == Span::Right { last } else { first };
            let old = &self.old[index];
            let end = self.old.get(index + 1).map_or(range.end, |next| next.start);
            let (from, to) = (old.start.max(range.start), end.min(range.end));
            each(from, to, &old.list);
            if first == last {
                return;
            }
            if span == Span::Right {
                last -= 1;
            } else {
                first += 1;
            }
        }
    }

    /// Returns the best boundary for giving a part of a class another list, and the cost. Within an
    /// old class, the cost is a parabola of the width.
    fn best_width(
        &self,
        span: Span,
        range: std::ops::Range<usize>,
        now: &[u32],
        list: &[u32],
        (slope, square): (f64, f64),
    ) -> Option<(usize, f64)> {
        let end_place = if span == Span::Right {
            range.end
        } else {
            range.start
        };
        let width_to =
            |place: usize| (self.extent.before(place) - self.extent.before(end_place)).abs();
        let at = |width: f64| {
            let before = self.extent.before(end_place);
            self.extent.nearest(if span == Span::Right {
                before - width
            } else {
                before + width
            })
        };
        let inner = range.start + 1..range.end;
        let mut best: Option<(usize, f64)> = None;
        let mut paid = 0.0;
        let mut piece = |from: usize, to: usize, price: f64| {
            let (near, far) = if span == Span::Right {
                (to, from)
            } else {
                (from, to)
            };
            let bottom = at(-(slope + price) / (2.0 * square)).clamp(from, to);
            for place in [bottom, far] {
                if !inner.contains(&place) {
                    continue;
                }
                let width = width_to(place);
                let cost =
                    paid + (slope + square * width) * width + price * (width - width_to(near));
                if best.is_none_or(|(_, least)| cost < least) {
                    best = Some((place, cost));
                }
            }
            paid += price * (width_to(far) - width_to(near));
        };
        if self.old.is_empty() {
            piece(range.start, range.end, 0.0);
        } else {
            self.over_old(span, range.clone(), |from, to, old| {
                piece(
                    from,
                    to,
                    self.change_price(list, old) - self.change_price(now, old),
                );
            });
        }
        best
    }

    /// Applies an edit, and returns the nodes whose load it changed.
    pub fn apply(&mut self, edit: &Edit) -> Vec<u32> {
        let Offer { from, to, .. } = edit.offer;
        let end = self.end(edit.section);
        let width = self.extent.width(from, to);
        let section = self.sections[edit.section].clone();
        self.add(&section.list, -width);
        self.add(&edit.list, width);
        let mut parts = Vec::new();
        if from > section.start {
            parts.push(section.clone());
        }
        parts.push(Section {
            start: from,
            list: edit.list.clone(),
        });
        if to < end {
            parts.push(Section {
                start: to,
                list: section.list.clone(),
            });
        }
        let first = edit.section.saturating_sub(1);
        let last = (edit.section + 2).min(self.sections.len());
        let mut around = Vec::with_capacity(5);
        around.extend_from_slice(&self.sections[first..edit.section]);
        around.append(&mut parts);
        around.extend_from_slice(&self.sections[edit.section + 1..last]);
        for section in &self.sections[first..last] {
            self.heads[section.list[0] as usize] -= 1;
        }
        Self::join(&mut around);
        for section in &around {
            self.heads[section.list[0] as usize] += 1;
        }
        self.sections.splice(first..last, around);
        let mut touched = section.list;
        touched.extend_from_slice(&edit.list);
        touched
    }
}
