//! The plan of one history, as data: what goes where, what leaves its place, and the report of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    Report,
    known_answers::{Assignment, RealResult, RemoteAnswers},
    words::Placeholder,
};
use crate::conversation::Flaw;

/// The repair of one history.
#[derive(Clone, Debug, Default)]
pub(super) struct HistoryPlan {
    /// Answers and quotes to put in, by turn; only turns that need some.
    pub(super) turns: BTreeMap<usize, TurnPlan>,
    /// What becomes of parts that do not stay as they are.
    pub(super) lifts: HashMap<usize, Lift>,
    /// New ids of call and result parts.
    pub(super) ids: HashMap<usize, String>,
    /// Results to quote in front of the words of a later unit.
    pub(super) deferred: BTreeMap<usize, Vec<usize>>,
    /// Results to quote behind a unit, as messages of their own.
    pub(super) behind: BTreeMap<usize, Vec<usize>>,
    /// Fields to mend.
    pub(super) fixes: Vec<Flaw>,
    /// Messages of which words leave their place.
    pub(super) arranged: BTreeSet<usize>,
    /// Whether results go up in messages without words.
    pub(super) results_apart: bool,
    /// Whether a user turn is put in front.
    pub(super) opening: bool,
    /// Remote calls: answered first, with placeholders.
    pub(super) held: Vec<String>,
    /// What was found and what is done about it.
    pub(super) report: Report,
    pub(super) assigned: Vec<Assignment>,
    pub(super) remote_answers: Option<RemoteAnswers>,
}

/// What is put into the gap of one turn.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnPlan {
    /// Answers, in the order of the calls.
    pub(super) answers: Vec<Answer>,
    /// Results that stood in front of the place of answers: quoted behind them.
    pub(super) quotes: Vec<usize>,
    /// Whether the system messages in front of the answering message go behind it.
    pub(super) systems: bool,
}

/// An answer that is put in.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// The part of the call.
    pub(super) call: usize,
    /// Where it comes from.
    pub(super) source: Source,
}

/// Where an answer comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A result of this body.
    Part(usize),
    /// A result from elsewhere.
    Real(RealResult),
    /// Nothing real is to be had.
    Placeholder(Placeholder),
}

/// What becomes of a part that does not stay as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lift {
    /// It leaves its place: moved, dropped, or quoted elsewhere.
    Gone,
    /// It is quoted where it stands.
    Quoted,
    /// A call that becomes text where it stands, with the reasoning right before it.
    Folded,
}
