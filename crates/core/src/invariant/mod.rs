//! A guard for authors of agents: each call of a history has its result, on every path on which the agent may stop.
//!
//! An agent tells an [`Invariant`] of each message that it adds to its history. The guard knows at any time which calls
//! are open, says before each save what a provider would refuse, and writes the results that close what is open. It
//! keeps no text: of the last turns the ids, names and kinds of calls and results, of everything before its faults and
//! hashes of ids.
//!
//! The judgements are those of [`check`](crate::repair::check), made over the end of the history alone, and the results
//! are those that a repair would put in.

mod broken_history;
mod closing;
mod observed;
mod pieces;
mod skeleton;
mod window;

use std::collections::HashSet;

pub use broken_history::{BrokenHistory, FINDINGS_MAX};
pub use closing::UnansweredCall;

use self::{closing::Closing, observed::Observed, window::Window};
use crate::{
    conversation::{Finding, Role},
    repair::{Placeholder, RepairPolicy},
    wire::{
        Unreadable, Wire,
        json::{self, Json, JsonKind},
    },
    work,
};

/// The invariant of one history: every call has its result, in its place.
///
/// ```
/// use antiphon_core::{Invariant, repair::Placeholder, wire::Wire};
///
/// let mut history = vec![
///     br#"{"role":"user","content":"Deploy it"}"#.to_vec(),
///     br#"{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"deploy","input":{}}]}"#.to_vec(),
/// ];
/// let mut invariant = Invariant::load(Wire::ANTHROPIC, &history).unwrap();
/// assert_eq!(invariant.open_calls()[0].tool, "deploy");
///
/// // The user aborts. On this path the history must not be saved as it is.
/// assert!(invariant.before_persist().is_err());
/// for message in invariant.close(Placeholder::OutcomeUnknown) {
///     history.push(message.into_bytes());
/// }
/// invariant.before_persist().unwrap();
/// assert!(invariant.close(Placeholder::OutcomeUnknown).is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Invariant {
    wire: Wire,
    /// Messages that were observed.
    count: usize,
    window: Window,
    /// Faults that no later message changes, in no order, at most [`FINDINGS_MAX`].
    findings: Vec<Finding>,
    /// Faults beyond those.
    left_out: usize,
    /// Hashes of the ids of items that must not occur twice.
    items: HashSet<u64>,
}

impl Invariant {
    /// Returns the invariant of an empty history.
    pub fn new(wire: Wire) -> Self {
        Self {
            wire,
            count: 0,
            window: Window::new(wire),
            findings: Vec::new(),
            left_out: 0,
            items: HashSet::new(),
        }
    }

    /// Returns the invariant of a history that was saved: its messages, or items, one JSON object each.
    ///
    /// # Errors
    ///
    /// Those of [`Invariant::observe`] for the first message that it refuses.
    pub fn load<M: AsRef<[u8]>>(wire: Wire, messages: impl IntoIterator<Item = M>) -> Result<Self, Unreadable> {
        let mut invariant = Self::new(wire);
        for message in messages {
            invariant.observe(message.as_ref())?;
        }
        Ok(invariant)
    }

    /// Returns the invariant of a history that is one JSON array.
    ///
    /// ```
    /// use antiphon_core::{Invariant, wire::Wire};
    ///
    /// let saved = br#"[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}]"#;
    /// let invariant = Invariant::load_array(Wire::OPENAI_CHAT, saved).unwrap();
    /// invariant.before_persist().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unreadable::Shape`] if it is no array, and those of [`Invariant::observe`].
    pub fn load_array(wire: Wire, history: &[u8]) -> Result<Self, Unreadable> {
        json::validate(history)?;
        let json = Json::new(history);
        let root = json.root_span()?;
        if json.kind(root) != JsonKind::Array {
            return Err(Unreadable::Shape);
        }
        Self::load(wire, json.elements(root).into_iter().map(|message| json.bytes(message)))
    }

    /// Notes a message that the agent adds to its history: a message, item or content of the format, one JSON object.
    ///
    /// # Errors
    ///
    /// [`Unreadable`] if it is no message of the format. It is not noted, and must not be added.
    pub fn observe(&mut self, message: &[u8]) -> Result<(), Unreadable> {
        let index = self.count;
        let observed = Observed::read(message, self.wire, index)?;
        if observed.role == Role::Assistant && self.window.ends_before_assistant() {
            let left = self.window.leave_turns()?;
            self.add_findings(left);
        }
        if observed.is_compaction {
            // The provider reads nothing before it.
            self.findings.clear();
            self.left_out = 0;
            self.window.forget_left_calls();
        }
        self.add_findings(observed.findings);
        if observed.item.is_some_and(|item| !self.items.insert(item)) {
            self.add_findings(vec![Finding::repeated_item(index)]);
        }
        let again = observed
            .calls
            .into_iter()
            .filter(|(hash, _)| self.window.repeats_left_call(*hash));
        let again: Vec<Finding> = again.map(|(_, id)| Finding::repeated_call(index, id)).collect();
        self.add_findings(again);
        self.window.may_have_remote_calls |= observed.may_have_remote_calls;
        self.window.push(index, observed.skeleton, observed.role);
        self.count = index.saturating_add(1);
        Ok(())
    }

    /// Returns the calls that wait for a result at the end of the history.
    ///
    /// Calls over which another message has passed are not among them: no message at the end answers these. None is
    /// listed if the last turns cannot be judged; [`Invariant::before_persist`] fails then.
    pub fn open_calls(&self) -> Vec<UnansweredCall> {
        let closing = Closing::plan(&self.window, self.wire);
        closing.map(Closing::into_calls).unwrap_or_default()
    }

    /// Checks the history before it is saved or sent.
    ///
    /// # Errors
    ///
    /// Everything that the provider would refuse, open calls included. [`Invariant::close`] answers these. What stays
    /// is in messages that were added before: [`repair`](fn@crate::repair) mends a request with them.
    pub fn before_persist(&self) -> Result<(), BrokenHistory> {
        let mut findings = self.findings.clone();
        work::count(findings.len());
        let mut left_out = self.left_out;
        match self.window.findings() {
            Ok(found) => findings.extend(found),
            // Nothing is known about its calls, so that it is not sound.
            Err(_) => left_out = left_out.saturating_add(1),
        }
        let place = |finding: &Finding| (finding.message, finding.part, finding.kind);
        findings.sort_by(|one, other| place(one).cmp(&place(other)).then_with(|| one.id.cmp(&other.id)));
        findings.dedup();
        left_out = left_out.saturating_add(findings.len().saturating_sub(FINDINGS_MAX));
        findings.truncate(FINDINGS_MAX);
        if findings.is_empty() && left_out == 0 {
            return Ok(());
        }
        Err(BrokenHistory {
            format: self.wire.format,
            findings,
            left_out,
        })
    }

    /// Answers the open calls with a constant text, and returns the messages to add to the history, in this order.
    ///
    /// [`Placeholder::ReadInterrupted`] tells the model that it may run the tools again, so that it is right only if all
    /// of them do nothing but read. Called again, it returns nothing, as it does if the last turns cannot be judged:
    /// [`Invariant::before_persist`] fails then. The messages are noted already.
    #[must_use = "the messages belong into the history"]
    pub fn close(&mut self, reason: Placeholder) -> Vec<String> {
        self.close_each(|_| reason)
    }

    /// Answers the open calls like [`Invariant::close`], each with the text for the tier of its tool.
    ///
    /// ```
    /// use antiphon_core::{Invariant, repair::{RepairPolicy, Tier}, wire::Wire};
    ///
    /// let mut policy = RepairPolicy::default();
    /// policy.tiers.insert("grep".to_owned(), Tier::Read);
    /// let call = br#"{"type":"function_call","call_id":"call_1","name":"grep","arguments":"{}"}"#;
    /// let mut invariant = Invariant::load(Wire::OPENAI_RESPONSES, [call]).unwrap();
    /// let results = invariant.close_by_tier(&policy);
    /// assert!(results[0].contains("it is safe to run it again"));
    /// ```
    #[must_use = "the messages belong into the history"]
    pub fn close_by_tier(&mut self, policy: &RepairPolicy) -> Vec<String> {
        self.close_each(|call| policy.placeholder(call.tool.as_bytes()))
    }

    fn close_each(&mut self, reason: impl Fn(&UnansweredCall) -> Placeholder) -> Vec<String> {
        let closing = Closing::plan(&self.window, self.wire);
        let results = closing.and_then(|closing| closing.write_results(reason));
        let Ok(results) = results else { return Vec::new() };
        let noted = |result: &String| self.observe(result.as_bytes()).is_ok();
        results.into_iter().filter(noted).collect()
    }

    /// Adds faults, as far as there is room.
    fn add_findings(&mut self, found: Vec<Finding>) {
        work::count(found.len());
        for finding in found {
            if self.findings.len() < FINDINGS_MAX {
                self.findings.push(finding);
            } else {
                self.left_out = self.left_out.saturating_add(1);
            }
        }
    }
}
