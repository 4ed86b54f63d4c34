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

/// The mends of one body. Most bodies have none, and their exchanges carry a pointer only.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct BodyMends {
    /// `None` if there are none.
    lists: Option<Box<MendLists>>,
    /// The conversation, for whose next request those are kept that no success proves. Most clients name no session, so a
    /// guessed one counts too: a wrong guess gets mends that this server has asked the same caller for.
    lane: Option<LaneId>,
}

/// The lists of the mends of one body.
#[derive(Clone, Debug, Default)]
struct MendLists {
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
        let mut mends = Self { lists: None, lane };
        let taught = path.facts.taught_mends(scope, model);
        let unproven = |lane: LaneId| path.facts.taught.unproven(|| scope.lane_key(lane.as_bytes(), model));
        let unproven = lane.and_then(unproven);
        if taught.is_empty() && unproven.is_none() {
            return mends;
        }
        let lists = mends.lists_mut();
        lists.lasting = taught;
        if let Some(unproven) = unproven {
            for mend in &unproven.mends {
                lists.add_lasting(mend);
            }
            lists.is_news |= !unproven.blocks.is_empty();
            lists.blocks.clone_from(&unproven.blocks);
            lists.rows.clone_from(&unproven.rows);
        }
        // They may have been taught before a switch was turned off.
        lists.lasting.retain(|mend| path.settings.policy.makes(mend.kind));
        mends
    }

    /// Returns no mends, in place of these.
    pub(in crate::proxy) fn retracted() -> Self {
        let mut mends = Self::default();
        mends.lists_mut().takes_back = true;
        mends
    }

    /// Returns `true` if there are none, and a success proves nothing.
    pub(in crate::proxy) const fn is_empty(&self) -> bool {
        self.lists.is_none()
    }

    /// Returns `true` if some of them change the body, and not only its header.
    pub(in crate::proxy) fn changes_body(&self) -> bool {
        let lists = self.lists.iter();
        let mut all = lists.flat_map(|lists| lists.lasting.iter().chain(&lists.once));
        all.any(|mend| mend.kind != MendKind::DropBeta)
    }

    /// Returns `true` if a success takes back what was taught before.
    pub(in crate::proxy) fn takes_back(&self) -> bool {
        self.lists.as_ref().is_some_and(|lists| lists.takes_back)
    }

    /// Returns the conversation of the body, if it is known or guessed.
    pub(in crate::proxy) const fn lane(&self) -> Option<LaneId> {
        self.lane
    }

    /// Returns those for every body, for as long as no success proves them. `None` if there are none.
    pub(in crate::proxy) fn unproven(&self) -> Option<UnprovenMends> {
        let lists = self.lists.as_ref()?;
        Some(UnprovenMends {
            mends: lists.lasting.clone(),
            blocks: lists.blocks.clone(),
            rows: lists.rows.clone(),
        })
    }

    /// Returns `true` if a block was mended because of a refusal of this exchange.
    pub(in crate::proxy) fn has_block(&self, block: &BlockHash) -> bool {
        self.lists.as_ref().is_some_and(|lists| lists.blocks.contains(block))
    }

    /// Adds the demand of a row that a beta is left out of the request's header. Returns `false` if there is no room for it.
    pub(in crate::proxy) fn add_beta(&mut self, beta: &str, row: &str) -> bool {
        let lists = self.lists_mut();
        Mend::new(MendKind::DropBeta, beta).is_some_and(|mend| {
            lists.note_row(&mend, row);
            lists.add_lasting(&mend)
        })
    }

    /// Adds what the refusal of a row has demanded. Returns `false` if there is no room for it.
    pub(in crate::proxy) fn add(&mut self, met: &Mended, demand: &Demand) -> bool {
        self.lists_mut().add(met, demand)
    }

    /// Returns what the success of a body with these mends proves.
    pub(in crate::proxy) fn facts(&self, scope: FactScope, model: Option<&str>) -> Vec<KeyedFact> {
        let lists = self.lists.as_ref();
        lists.map(|lists| lists.facts(scope, model)).unwrap_or_default()
    }

    fn lists_mut(&mut self) -> &mut MendLists {
        self.lists.get_or_insert_default()
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
        let lists = self.lists.as_ref();
        let row = lists.and_then(|lists| lists.rows.iter().find(|(known, _)| known == mend));
        MadeMend {
            mend: mend.clone(),
            places,
            row: row.map(|(_, row)| row.clone()),
            is_lasting: lists.is_some_and(|lists| lists.lasting.contains(mend)),
        }
    }

    /// Returns the mends that leave betas out of the request's header.
    fn betas(&self) -> impl Iterator<Item = &Mend> {
        let lists = self.lists.iter();
        let lasting = lists.flat_map(|lists| &lists.lasting);
        lasting.filter(|mend| mend.kind == MendKind::DropBeta)
    }

    /// Makes the mends in a planned body. Returns `None` if none fits.
    pub(in crate::proxy) fn make(
        &self,
        planned: &Segments,
        wire: Wire,
        path: &DataPath,
        scope: FactScope,
    ) -> Option<Mended> {
        let lists = self.lists.as_ref()?;
        // Betas are no part of the body, which need not be read for them.
        let of_body = |mend: &&Mend| mend.kind != MendKind::DropBeta;
        let known = lists.lasting.iter().chain(&lists.once);
        let mut all: Vec<Mend> = known.filter(of_body).cloned().collect();
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

impl MendLists {
    fn add(&mut self, met: &Mended, demand: &Demand) -> bool {
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

    fn facts(&self, scope: FactScope, model: Option<&str>) -> Vec<KeyedFact> {
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
