//! What a plan says of a turn, of an answer, and of a part.

use super::{RealResult, words::Placeholder};

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
