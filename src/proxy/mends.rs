//! The mends of one body: those that refusals have taught before, and those of its own exchange.

use bytes::Bytes;
use http::HeaderMap;

use super::{
    betas::{has_beta, remove_beta},
    data_path::DataPath,
    fact_scope::FactScope,
    mend_limits::UnprovenMends,
};
use crate::{
    mend::{BlockHash, MENDS_MAX, Mend, Mended, action_of, mend_body},
    recall::{KeyedFact, LearnedFact},
    repair::{Action, RepairReport},
    session::LaneId,
    splice::Segments,
    wire::{Learning, MendKind, Wire},
};

/// The mends of one body.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct BodyMends {
    /// Those for every body of the caller for the model.
    lasting: Vec<Mend>,
    /// Those for this body only.
    once: Vec<Mend>,
    /// Blocks that were mended because of refusals of this exchange.
    blocks: Vec<BlockHash>,
    /// `true` if a success would prove something new.
    is_news: bool,
    /// The conversation, for whose next request those are kept that no success proves. Most clients name no session, so a
    /// guessed one counts too: a wrong guess gets mends that this server has asked the same caller for.
    lane: Option<LaneId>,
}

impl BodyMends {
    /// Returns the mends that refusals have taught for a model, and those of the last request of the lane that no success has
    /// proven yet.
    pub(in crate::proxy) fn known(
        path: &DataPath,
        scope: FactScope,
        model: Option<&str>,
        lane: Option<LaneId>,
    ) -> Self {
        let mut mends = Self {
            lasting: path.facts.taught_mends(scope, model),
            lane,
            ..Self::default()
        };
        if let Some(unproven) = lane.and_then(|lane| path.facts.mend_limits.unproven(scope, lane, model)) {
            unproven.mends.iter().for_each(|mend| mends.add_lasting(mend));
            mends.is_news |= !unproven.blocks.is_empty();
            mends.blocks.clone_from(&unproven.blocks);
        }
        // They may have been taught before a switch was turned off.
        mends.lasting.retain(|mend| path.settings.policy.makes(mend.kind));
        mends
    }

    /// Returns `true` if there is none.
    pub(in crate::proxy) const fn is_empty(&self) -> bool {
        self.lasting.is_empty() && self.once.is_empty()
    }

    /// Returns the conversation of the body, if it is known or guessed.
    pub(in crate::proxy) const fn lane(&self) -> Option<LaneId> {
        self.lane
    }

    /// Returns those for every body, for as long as no success proves them.
    pub(in crate::proxy) fn unproven(&self) -> UnprovenMends {
        UnprovenMends {
            mends: self.lasting.clone(),
            blocks: self.blocks.clone(),
        }
    }

    /// Returns no mends, in place of these.
    pub(in crate::proxy) const fn retracted() -> Self {
        Self {
            lasting: Vec::new(),
            once: Vec::new(),
            blocks: Vec::new(),
            is_news: true,
            lane: None,
        }
    }

    /// Returns `true` if a block was mended because of a refusal of this exchange.
    pub(in crate::proxy) fn has_block(&self, block: &BlockHash) -> bool {
        self.blocks.contains(block)
    }

    /// Returns the betas that are left out of the request's header.
    pub(in crate::proxy) fn betas(&self) -> impl Iterator<Item = &str> {
        let of_header = self.lasting.iter().filter(|mend| mend.kind == MendKind::DropBeta);
        of_header.map(|mend| &*mend.word)
    }

    /// Adds a beta that a refusal names.
    pub(in crate::proxy) fn add_beta(&mut self, beta: &str) {
        if let Some(mend) = Mend::new(MendKind::DropBeta, beta) {
            self.add_lasting(&mend);
        }
    }

    /// Adds what a refusal has demanded.
    pub(in crate::proxy) fn add(&mut self, met: &Mended, learning: Learning) {
        for (mend, _) in &met.made {
            match learning {
                Learning::Once if !self.once.contains(mend) => self.once.push(mend.clone()),
                Learning::Once => {}
                Learning::Block | Learning::Rule => self.add_lasting(mend),
            }
        }
        self.is_news |= !met.blocks.is_empty();
        self.blocks.extend(&met.blocks);
    }

    fn add_lasting(&mut self, mend: &Mend) {
        if !self.lasting.contains(mend) && self.lasting.len() < MENDS_MAX {
            self.lasting.push(mend.clone());
            self.lasting.sort();
            self.is_news = true;
        }
    }

    /// Returns what the success of a body with these mends proves.
    pub(in crate::proxy) fn facts(&self, scope: FactScope, model: Option<&str>) -> Vec<KeyedFact> {
        if !self.is_news {
            return Vec::new();
        }
        let taught = (scope.taught_key(model), LearnedFact::Taught(self.lasting.clone()));
        let blocks = self.blocks.iter();
        let blocks = blocks.map(|block| (scope.block_key(block), LearnedFact::RefusedBlock));
        [taught].into_iter().chain(blocks).collect()
    }

    /// Makes the mends in a planned body. Returns `None` if none fits.
    pub(in crate::proxy) fn make(
        &self,
        planned: &Segments,
        wire: Wire,
        path: &DataPath,
        scope: FactScope,
    ) -> Option<Mended> {
        // Betas are no part of the body, which need not be read for them.
        let of_body = |mend: &&Mend| mend.kind != MendKind::DropBeta;
        let mut all: Vec<Mend> = self.lasting.iter().chain(&self.once).filter(of_body).cloned().collect();
        if all.is_empty() {
            return None;
        }
        // Always in one order, so that later bodies get the same bytes.
        all.sort();
        let is_refused = |block: &BlockHash| self.has_block(block) || path.facts.is_refused_block(scope, block);
        let mended = mend_body(&one_piece(planned), wire, &all, &is_refused).ok()?;
        (!mended.made.is_empty()).then_some(mended)
    }
}

/// Returns a body in one piece. A copy only if it has several.
pub(in crate::proxy) fn one_piece(body: &Segments) -> Bytes {
    match body.parts() {
        [whole] => whole.clone(),
        _ => body.to_vec().into(),
    }
}

/// Counts the mends of a body in the report of its repair.
pub(in crate::proxy) fn add_to_report(mended: &Mended, report: &mut RepairReport) {
    for (mend, count) in &mended.made {
        let actions = report.actions.entry(action_of(mend.kind)).or_default();
        *actions = actions.saturating_add(*count);
    }
}

/// Removes the betas that the server does not know from a request's headers.
pub(in crate::proxy) fn leave_betas_out(mends: &BodyMends, headers: &mut HeaderMap) {
    for beta in mends.betas() {
        remove_beta(headers, beta);
    }
}

/// Counts the betas that are left out of these headers in the report of a repair.
pub(in crate::proxy) fn count_betas(mends: &BodyMends, headers: &HeaderMap, report: &mut RepairReport) {
    let count = mends.betas().filter(|beta| has_beta(headers, beta)).count();
    if count > 0 {
        let actions = report.actions.entry(Action::LeaveOut).or_default();
        *actions = actions.saturating_add(count);
    }
}
