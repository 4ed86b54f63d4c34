//! The mends of one body: those that refusals have taught before, and those of its own exchange.

use bytes::Bytes;

use super::{data_path::DataPath, fact_scope::FactScope};
use crate::{
    mend::{BlockHash, MENDS_MAX, Mend, Mended, action_of, mend_body},
    recall::{KeyedFact, LearnedFact},
    repair::RepairReport,
    session::LaneId,
    splice::Segments,
    wire::{Learning, Wire},
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
            ..Self::default()
        };
        if let Some(unproven) = lane.and_then(|lane| path.facts.mend_limits.unproven(scope, lane)) {
            unproven.iter().for_each(|mend| mends.add_lasting(mend));
        }
        mends
    }

    /// Returns `true` if there is none.
    pub(in crate::proxy) const fn is_empty(&self) -> bool {
        self.lasting.is_empty() && self.once.is_empty()
    }

    /// Returns those for every body.
    pub(in crate::proxy) fn lasting(&self) -> &[Mend] {
        &self.lasting
    }

    /// Returns no mends, in place of these.
    pub(in crate::proxy) const fn retracted() -> Self {
        Self {
            lasting: Vec::new(),
            once: Vec::new(),
            blocks: Vec::new(),
            is_news: true,
        }
    }

    /// Returns `true` if a block was mended because of a refusal of this exchange.
    pub(in crate::proxy) fn has_block(&self, block: &BlockHash) -> bool {
        self.blocks.contains(block)
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
        if self.is_empty() {
            return None;
        }
        let mut all = [&self.lasting[..], &self.once].concat();
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
