//! The mends of one body: those that refusals have taught before, and those of its own exchange.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::HeaderMap;

use super::{
    betas::{has_beta, remove_beta},
    data_path::DataPath,
    fact_scope::FactScope,
};
use crate::{
    mend::{BlockHash, MENDS_MAX, Mend, Mended, action_of, mend_body},
    recall::{KeyedFact, LearnedFact, UnprovenMends},
    repair::RepairReport,
    session::LaneId,
    splice::Segments,
    telemetry::events::MadeMend,
    wire::{Demand, Learning, MendKind, Wire},
};

/// The most blocks that were mended and that no success has proven yet, over all tries of a conversation.
const BLOCKS_MAX: usize = 512;

/// The mends of one body.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct BodyMends {
    /// Those for every body of the caller for the model.
    lasting: Vec<Mend>,
    /// Those for this body only.
    once: Vec<Mend>,
    /// Blocks that were mended because of refusals of this exchange, 256 for each of them at most.
    blocks: BTreeSet<BlockHash>,
    /// The rows that have demanded some of them, in this exchange or in the last one of the lane.
    rows: Vec<(Mend, Box<str>)>,
    /// `true` if a success would prove something new.
    is_news: bool,
    /// `true` if a success takes back what was taught before.
    takes_back: bool,
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
        let unproven = |lane: LaneId| path.facts.taught.unproven(|| scope.lane_key(lane.as_bytes(), model));
        if let Some(unproven) = lane.and_then(unproven) {
            for mend in &unproven.mends {
                mends.add_lasting(mend);
            }
            mends.is_news |= !unproven.blocks.is_empty();
            mends.blocks.clone_from(&unproven.blocks);
            mends.rows.clone_from(&unproven.rows);
        }
        // They may have been taught before a switch was turned off.
        mends.lasting.retain(|mend| path.settings.policy.makes(mend.kind));
        mends
    }

    /// Returns `true` if some of them change the body, and not only its header.
    pub(in crate::proxy) fn changes_body(&self) -> bool {
        let mut all = self.lasting.iter().chain(&self.once);
        all.any(|mend| mend.kind != MendKind::DropBeta)
    }

    /// Returns `true` if a success takes back what was taught before.
    pub(in crate::proxy) const fn takes_back(&self) -> bool {
        self.takes_back
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
            rows: self.rows.clone(),
        }
    }

    /// Returns no mends, in place of these.
    pub(in crate::proxy) const fn retracted() -> Self {
        Self {
            lasting: Vec::new(),
            once: Vec::new(),
            blocks: BTreeSet::new(),
            rows: Vec::new(),
            is_news: false,
            takes_back: true,
            lane: None,
        }
    }

    /// Returns `true` if a block was mended because of a refusal of this exchange.
    pub(in crate::proxy) fn has_block(&self, block: &BlockHash) -> bool {
        self.blocks.contains(block)
    }

    /// Adds the demand of a row that a beta is left out of the request's header. Returns `false` if there is no room for it.
    pub(in crate::proxy) fn add_beta(&mut self, beta: &str, row: &str) -> bool {
        Mend::new(MendKind::DropBeta, beta).is_some_and(|mend| {
            self.note_row(&mend, row);
            self.add_lasting(&mend)
        })
    }

    /// Adds what the refusal of a row has demanded. Returns `false` if there is no room for it.
    pub(in crate::proxy) fn add(&mut self, met: &Mended, demand: &Demand) -> bool {
        let mut has_room = true;
        for (mend, _) in &met.made {
            self.note_row(mend, &demand.row);
            match demand.learning {
                Learning::Once if !self.once.contains(mend) => self.once.push(mend.clone()),
                Learning::Once => {}
                Learning::Block | Learning::Rule => has_room &= self.add_lasting(mend),
            }
        }
        self.is_news |= !met.blocks.is_empty();
        let room = BLOCKS_MAX.saturating_sub(self.blocks.len());
        has_room &= met.blocks.len() <= room;
        self.blocks.extend(met.blocks.iter().take(room));
        has_room
    }

    /// Notes the row that has demanded a mend. The first one counts.
    fn note_row(&mut self, mend: &Mend, row: &str) {
        let is_known = self.rows.iter().any(|(known, _)| known == mend);
        if !is_known && self.rows.len() < MENDS_MAX {
            self.rows.push((mend.clone(), row.into()));
        }
    }

    /// Adds a mend for every body. Returns `false` if there is no room for it.
    fn add_lasting(&mut self, mend: &Mend) -> bool {
        if self.lasting.contains(mend) {
            return true;
        }
        if self.lasting.len() >= MENDS_MAX {
            return false;
        }
        self.lasting.push(mend.clone());
        self.lasting.sort();
        self.is_news = true;
        true
    }

    /// Returns what the success of a body with these mends proves.
    pub(in crate::proxy) fn facts(&self, scope: FactScope, model: Option<&str>) -> Vec<KeyedFact> {
        // Most bodies prove nothing, and then the key need not be hashed.
        if !self.is_news && !self.takes_back {
            return Vec::new();
        }
        let key = scope.taught_key(model);
        if self.takes_back {
            return vec![(key, LearnedFact::Taught(Vec::new()))];
        }
        // An empty list would take back what was taught before.
        let has_lasting = !self.lasting.is_empty();
        let taught = has_lasting.then(|| (key, LearnedFact::Taught(self.lasting.clone())));
        let blocks = self.blocks.iter();
        let blocks = blocks.map(|block| (scope.block_key(block), LearnedFact::RefusedBlock));
        taught.into_iter().chain(blocks).collect()
    }

    /// Returns the mends that were made in a body, each with its row.
    pub(in crate::proxy) fn made_in(&self, mended: &Mended) -> Vec<MadeMend> {
        let made = mended.made.iter();
        made.map(|(mend, places)| self.made(mend, *places)).collect()
    }

    /// Returns the mends that leave betas out of these headers, or that have done so for an earlier send of the request.
    pub(in crate::proxy) fn made_in_header(&self, headers: &HeaderMap, before: &[MadeMend]) -> Vec<MadeMend> {
        let was_made = |mend: &Mend| before.iter().any(|made| made.mend == *mend);
        let made = self
            .betas()
            .filter(|mend| has_beta(headers, &mend.word) || was_made(mend));
        made.map(|mend| self.made(mend, 1)).collect()
    }

    fn made(&self, mend: &Mend, places: usize) -> MadeMend {
        let row = self.rows.iter().find(|(known, _)| known == mend);
        MadeMend {
            mend: mend.clone(),
            places,
            row: row.map(|(_, row)| row.clone()),
            is_lasting: self.lasting.contains(mend),
        }
    }

    /// Returns the mends that leave betas out of the request's header.
    fn betas(&self) -> impl Iterator<Item = &Mend> {
        self.lasting.iter().filter(|mend| mend.kind == MendKind::DropBeta)
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
pub(in crate::proxy) fn add_to_report(made: &[MadeMend], report: &mut RepairReport) {
    for MadeMend { mend, places, .. } in made {
        let actions = report.actions.entry(action_of(mend.kind)).or_default();
        *actions = actions.saturating_add(*places);
    }
}

/// Removes the betas that the server does not know from a request's headers.
pub(in crate::proxy) fn leave_betas_out(mends: &BodyMends, headers: &mut HeaderMap) {
    for mend in mends.betas() {
        remove_beta(headers, &mend.word);
    }
}
