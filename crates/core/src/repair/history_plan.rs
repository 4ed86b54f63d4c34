//! The plan of one history as data: insertions, removals, new ids, and the report.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    RepairReport,
    known_results::{Assignment, RealResult, RemoteResults},
    texts::Placeholder,
};
use crate::conversation::{Flaw, PartId, TurnId};

/// The repair of one history.
#[derive(Clone, Debug, Default)]
pub(super) struct HistoryPlan {
    /// Results and quotes to insert, by turn. Only turns that need some.
    pub(super) turns: BTreeMap<TurnId, TurnPlan>,
    /// Changes of parts that do not stay as they are.
    pub(super) part_changes: HashMap<PartId, PartChange>,
    /// New ids of call and result parts.
    pub(super) new_ids: HashMap<PartId, String>,
    /// Results to quote before the text of a later unit.
    pub(super) deferred_quotes: BTreeMap<usize, Vec<PartId>>,
    /// Results to quote after a unit, as messages of their own.
    pub(super) quotes_after: BTreeMap<usize, Vec<PartId>>,
    /// Parts of Gemini that get the documented signature in place of a foreign one.
    pub(super) unsigned: BTreeSet<PartId>,
    /// Fields to fix.
    pub(super) fixes: Vec<Flaw>,
    /// Messages whose text moves.
    pub(super) arranged: BTreeSet<usize>,
    /// `true` if messages with results must not contain text.
    pub(super) results_apart: bool,
    /// `true` if an assistant message goes between results and a user's message after them.
    pub(super) adds_bridges: bool,
    /// `true` if a user turn is inserted at the beginning.
    pub(super) adds_opening: bool,
    /// Ids of remote calls to answer first, with placeholders.
    pub(super) remote_calls: Vec<String>,
    /// Findings and actions.
    pub(super) report: RepairReport,
    /// Results given to calls for the first time.
    pub(super) assigned: Vec<Assignment>,
    /// Remote calls that are answered because the provider's refusal named them.
    pub(super) remote_results: Option<RemoteResults>,
}

/// Insertions into the gap of one turn.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnPlan {
    /// Results, in the order of the calls.
    pub(super) results: Vec<PlannedResult>,
    /// Results before the place of the new ones, to be quoted after it.
    pub(super) quotes: Vec<PartId>,
    /// `true` if the system messages before the answering message move after it.
    pub(super) moves_systems: bool,
}

/// A result to insert.
#[derive(Clone, Debug)]
pub(super) struct PlannedResult {
    /// The part of the call.
    pub(super) call: PartId,
    /// Its source.
    pub(super) source: ResultSource,
}

/// The source of a result.
#[derive(Clone, Debug)]
pub(super) enum ResultSource {
    /// A result of this body.
    Part(PartId),
    /// A result from elsewhere.
    Real(RealResult),
    /// A placeholder, because no real result exists.
    Placeholder(Placeholder),
}

/// The change of a part that does not stay as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartChange {
    /// Leaves its place because it is moved, dropped, or quoted elsewhere.
    Removed,
    /// Becomes a quote in its place.
    Quoted,
    /// Becomes text in its place, together with the reasoning before it (calls only).
    AsText,
}
