//! The answers of one request on its way: kept before it is sent, and taken back unless a provider takes it.

use std::collections::HashMap;

use bytes::Bytes;

use super::{caught::caught, owed::Owed, recalled::Notes};
use crate::{
    conversation::Outline,
    ledger::Name,
    recall::{Appended, Given, Patience},
    repair::{Anchor, CallKey, Frozen, brought},
};

/// The answers of a request on its way: taken back, unless a provider takes it.
#[derive(Debug)]
pub(super) struct Tentative {
    pub(super) owed: Owed,
    /// How long second sends may still wait for the ledger.
    pub(super) patience: Patience,
    pub(super) notes: Notes,
    /// The calls whose results a service posted.
    pub(super) posted: HashMap<CallKey, Name>,
    /// Where a second send has put text that stood nowhere before.
    pub(super) placed: Option<Anchor>,
    /// The body as it came, decoded, with what it says of its end: it may bring results.
    pub(super) plain: Bytes,
    pub(super) outline: Outline,
}

impl Tentative {
    /// The provider has answered the request with success.
    pub(super) fn accepted(mut self) {
        let (scope, Owed { late, recall, .. }) = (self.owed.scope(), &self.owed);
        // What stood there was a result: a placeholder may have taken its place since.
        let real = |(call, answer): &Given| matches!(answer, Frozen::Result(_)).then_some(*call);
        let given = self.notes.given.iter().filter_map(real);
        late.delivered(scope.who, given.filter_map(|call| self.posted.get(&call)).copied());
        let mut used = std::mem::take(&mut self.notes.used);
        used.append(&mut self.notes.given);
        recall.accepted(scope, &used);
        self.placed = None;
        let brought = caught(|| {
            self.owed.shown(&self.plain, &self.outline);
            let in_lane = scope.lane.is_some();
            Some(brought(&self.plain, scope.format, &self.outline, in_lane))
        });
        recall.saw(scope, brought.unwrap_or_default());
    }

    /// A second send gives other answers than the first: those are taken back that are not given again, and what is given
    /// now is kept. False where the text that it puts at the end of a message cannot be kept.
    pub(super) async fn replaced(&mut self, notes: Notes, late: Option<(Anchor, Appended)>) -> bool {
        let (scope, Owed { recall, .. }) = (self.owed.scope(), &self.owed);
        let gone = self.notes.given.iter().filter(|given| !notes.given.contains(given));
        recall.withdrawn(scope, gone);
        self.notes = notes;
        let given = &self.notes.given;
        let keep = async |by| {
            // What another request has given meanwhile stays the calls' answer; this send was refused without it.
            drop(recall.freeze(scope, given, by).await);
            match late {
                Some((anchor, appended)) => {
                    let kept = recall.append(scope.who, anchor, appended, by).await;
                    kept.map(|(_, is_new)| is_new.then_some(anchor))
                }
                None => Some(None),
            }
        };
        let kept = self.patience.spend(keep).await;
        self.unplaced();
        self.placed = kept.flatten();
        kept.is_some()
    }

    fn unplaced(&mut self) {
        if let Some(anchor) = self.placed.take() {
            self.owed.recall.unappend(self.owed.who.principal, anchor);
        }
    }
}

impl Drop for Tentative {
    fn drop(&mut self) {
        self.owed.recall.withdrawn(self.owed.scope(), &self.notes.given);
        self.unplaced();
    }
}
