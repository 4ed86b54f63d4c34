//! What one attempt with a profile has shown.

use std::time::Instant;

use crate::policy::{LimitHints, Verdict};

/// The outcome of one attempt with a profile.
#[derive(Clone, Copy, Debug)]
pub struct AttemptReport<'r> {
    /// The verdict.
    pub verdict: Verdict,
    /// The model of the request.
    pub model: Option<&'r str>,
    /// The template of the path; `None` if it is unknown.
    pub path: Option<&'static str>,
    /// The provider's hints about limits.
    pub hints: LimitHints,
    /// The start of the attempt.
    pub began: Instant,
    /// From 0 to 1: lengthens a cooldown, so that many do not end at the same time.
    pub jitter: f64,
}
