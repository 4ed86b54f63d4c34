//! The open calls of one lane: how a request closes them.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    conversation::{
        Outline,
        outline::{ID_BYTES_MAX, IDS_MAX},
    },
    wire::watch::{Calls, TEXT_BYTES_MAX},
};

// An id is cut alike where it is emitted and where it comes back.
const _: () = assert!(ID_BYTES_MAX == TEXT_BYTES_MAX);

/// Calls of one lane that are kept: of more the oldest is forgotten.
pub const OPEN_MAX: usize = IDS_MAX;

/// A call that the client has not answered so far.
#[derive(Clone, Debug)]
pub(super) struct OpenCall {
    /// Empty where the format has none.
    id: Box<str>,
    pub(super) tool: Box<str>,
    pub(super) opened_at: Instant,
    /// The answer that it came with.
    answer: u64,
    /// The messages of the request that was answered.
    messages: usize,
}

impl OpenCall {
    /// Bytes that it takes.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>()
            .saturating_add(self.id.len())
            .saturating_add(self.tool.len())
    }

    fn is_called(&self, id: &[u8]) -> bool {
        // What was emitted was cut behind a whole letter.
        let cut = id.len() >= ID_BYTES_MAX && self.id.len() > ID_BYTES_MAX.saturating_sub(4);
        !self.id.is_empty() && (*id == *self.id.as_bytes() || (cut && id.starts_with(self.id.as_bytes())))
    }

    /// Whether its id has these letters and digits: openclaw strips what stands between them.
    fn is_like(&self, wanted: &[u8]) -> bool {
        let own = self.id.bytes().filter(u8::is_ascii_alphanumeric);
        !wanted.is_empty() && own.eq(wanted.iter().copied())
    }

    fn is_any_of(&self, ids: &[Box<[u8]>]) -> bool {
        ids.iter().any(|id| self.is_called(id) || self.is_like(&letters(id)))
    }
}

fn letters(id: &[u8]) -> Vec<u8> {
    id.iter().copied().filter(u8::is_ascii_alphanumeric).collect()
}

/// What a request closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Calls whose results it brought: the tool, and how long the call was open.
    pub settled: Vec<(Box<str>, Duration)>,
    /// Calls that the lane went on without.
    pub abandoned: usize,
}

/// The open calls of a lane, and how far its history went.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenCalls {
    pub(super) list: Vec<OpenCall>,
    /// Messages of the last request that was no side request.
    messages: usize,
    /// Messages of the last request.
    latest: usize,
    answers: u64,
}

impl OpenCalls {
    /// Opens the calls of an answer.
    pub(super) fn open(&mut self, calls: &Calls, now: Instant) {
        if calls.list.is_empty() {
            return;
        }
        self.answers = self.answers.saturating_add(1);
        let open = calls.list.iter().map(|call| OpenCall {
            id: call.id.clone(),
            tool: call.name.clone(),
            opened_at: now,
            answer: self.answers,
            messages: self.latest,
        });
        self.list.extend(open);
        let over = self.list.len().saturating_sub(OPEN_MAX);
        self.list.drain(..over);
    }

    /// Closes what a request answers, and what it shows that the lane went on without. A side request, shorter than
    /// the one before and without any of the calls, closes nothing.
    pub(super) fn close(&mut self, outline: &Outline, now: Instant) -> Closed {
        let mut closed = Closed::default();
        self.latest = outline.messages;
        let settled = self.settled(outline);
        let is_in_body = |(call, settled): (&OpenCall, &bool)| *settled || call.is_any_of(&outline.asked);
        let in_body: Vec<u64> = self
            .list
            .iter()
            .zip(&settled)
            .filter(|found| is_in_body(*found))
            .map(|(call, _)| call.answer)
            .collect();
        if outline.messages < self.messages && in_body.is_empty() {
            return closed;
        }
        self.messages = outline.messages;
        let mut settled = settled.into_iter();
        self.list.retain(|call| {
            if settled.next() == Some(true) {
                let open = now.saturating_duration_since(call.opened_at);
                closed.settled.push((call.tool.clone(), open));
                return false;
            }
            // A request too short to go on from the call's answer is another agent's, unless it holds that answer.
            let goes_on = outline.messages >= call.messages || in_body.contains(&call.answer);
            closed.abandoned = closed.abandoned.saturating_add(usize::from(goes_on));
            !goes_on
        });
        closed
    }

    /// For each open call whether a result in the request is its own. Each result answers one call.
    fn settled(&self, outline: &Outline) -> Vec<bool> {
        let mut settled = vec![false; self.list.len()];
        if self.list.is_empty() {
            return settled;
        }
        let mut results: Vec<(&[u8], &[u8])> = Vec::with_capacity(outline.answers.len());
        for (index, id) in outline.answers.iter().enumerate() {
            if !self.settle(&mut settled, |call| call.is_called(id)) {
                let name = outline.answer_names.get(index);
                results.push((id, name.map(AsRef::as_ref).unwrap_or_default()));
            }
        }
        // Letters are enough where they can mean one call and one result alone.
        let letters_of: Vec<Vec<u8>> = results.iter().map(|(id, _)| letters(id)).collect();
        for ((_, name), own) in results.iter().zip(&letters_of) {
            let open = self.list.iter().zip(&settled).filter(|(_, settled)| !**settled);
            let alike = open.filter(|(call, _)| call.is_like(own)).count();
            if alike == 1 && letters_of.iter().filter(|other| *other == own).count() == 1 {
                self.settle(&mut settled, |call| call.is_like(own));
            } else if alike == 0 && !name.is_empty() {
                // A call without an id, to which some clients give one of their own.
                self.settle(&mut settled, |call| {
                    call.id.is_empty() && *call.tool.as_bytes() == **name
                });
            }
        }
        settled
    }

    /// Settles the last open call that `is_it`, of several of one answer the first; whether there was one.
    fn settle(&self, settled: &mut [bool], is_it: impl Fn(&OpenCall) -> bool) -> bool {
        let open = |index: &usize| settled.get(*index) == Some(&false);
        let found = self
            .list
            .iter()
            .enumerate()
            .filter(|(index, call)| open(index) && is_it(call));
        let best = found.max_by_key(|(index, call)| (call.answer, std::cmp::Reverse(*index)));
        let slot = best.map(|(index, _)| index).and_then(|index| settled.get_mut(index));
        slot.map(|slot| *slot = true).is_some()
    }
}
