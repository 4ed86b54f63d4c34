//! Repair of request bodies: from findings to a plan, and from the plan to edits.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

use crate::{
    conversation::{Finding, FindingKind, rules::WordsPlace},
    splice::Segments,
    wire::{Unreadable, Wire},
    work,
};

mod arrange;
mod block_layout;
mod body_calls;
mod bound_thinking;
mod broken_calls;
mod call_key;
mod call_results;
mod canonical;
mod client_results;
mod continuity;
mod continuity_rules;
mod earlier_runs;
mod edits;
mod evidence;
mod fields;
mod foreign_thinking;
mod history_plan;
mod id_strength;
mod insertions;
mod known_results;
mod late_texts;
mod layout;
mod learned_rules;
mod legal_ids;
mod lone_surrogates;
mod long_results;
mod malformed_calls;
mod message_layout;
mod new_ids;
mod parsed;
mod plan;
mod planner;
mod policy;
mod proven_rules;
mod quote_labels;
mod refusal_constraints;
mod remote_calls;
mod repair_rules;
mod result_block;
mod salvage;
mod same_result;
mod task_status;
mod texts;
mod thinking_marks;

pub use body_calls::{BodyCall, BodyResult, ResultContent};
pub use bound_thinking::replace_unseen_results;
pub use broken_calls::{BROKEN_CALLS_MAX, BrokenCall};
pub use call_key::{CallIdentity, CallKey, IdSpelling, call_context_hash, id_letters};
pub use canonical::input_hash;
pub use client_results::{ClientResult, client_results};
pub use continuity::{CarriedIdentity, ContinuityGap, ContinuityKind, continuity_gaps, last_message_hash};
pub use continuity_rules::{ContinuityRules, LostValues, lost_values};
pub use earlier_runs::mark_earlier_run;
pub use evidence::{Details, Evidence, RepairRule};
pub use foreign_thinking::{ThinkingBlock, last_thinking, thinking_blocks};
pub use id_strength::{has_makers_form, is_strong};
pub use insertions::Insertions;
pub use known_results::{
    Assignment, KnownResults, PinnedResult, RealResult, RemoteCalls, RemoteReferences, RemoteResults,
};
pub use late_texts::{
    Anchor, LatePlace, LateText, PlaceOptions, contains_result, late_media, late_places, late_text, readable_text,
    text_contains,
};
pub use learned_rules::{DisputedShape, LearnedRules};
pub use long_results::requested_result;
pub(crate) use parsed::checked_rules;
pub use parsed::{Paired, PairingContext, Parsed, parse};
pub use plan::{Plan, plan};
pub use policy::{Applicability, Mode, OnForeignThinking, OnLate, RepairPolicy, Tier};
pub use refusal_constraints::RefusalReading;
pub use repair_rules::REPAIR_RULES;
pub use result_block::{cut_block, names_call, without_cache_control};
pub use same_result::block_content;
pub use task_status::is_working_task;
pub use texts::{LateCall, Placeholder};
pub use thinking_marks::ThinkingHash;

/// The action taken on a finding. Names are stable: metric labels and the `x-antiphon-repair` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Moved a real result after its call.
    Move,
    /// Merged results that were split over messages.
    Merge,
    /// Inserted a real result that was remembered, or posted by a tool service.
    Restore,
    /// Replaced an id, for call and result alike, or gave a result the id that it lacked.
    Rename,
    /// Turned a result into marked user text.
    Quote,
    /// Removed a block: an equal duplicate, half of a server tool pair, or foreign thinking.
    Drop,
    /// Inserted a placeholder.
    Placeholder,
    /// Gave a field a value that the provider accepts.
    Fix,
    /// Moved text to a place where the provider accepts it: before calls, or into a message of its own.
    Rearrange,
    /// Inserted a constant user turn at the beginning.
    Open,
    /// Let the provider drop thinking that is bound to another prefix.
    Unbind,
    /// Appended a late result to a message of the user.
    Append,
    /// Put back what an answer carried and the client has dropped: reasoning, a signature, a container.
    Continue,
    /// Left out a member, a parameter, a cache marker or a header that the provider refuses.
    LeaveOut,
    /// Let the user speak last.
    Close,
    /// Switched thinking off while a tool loop is open.
    Disable,
    /// Lowered the limit of the answer to what the provider leaves for it.
    Lower,
}

impl Action {
    /// Every action, in the order of the header.
    pub const ALL: [Self; 17] = [
        Self::Move,
        Self::Merge,
        Self::Restore,
        Self::Rename,
        Self::Quote,
        Self::Drop,
        Self::Placeholder,
        Self::Fix,
        Self::Rearrange,
        Self::Open,
        Self::Unbind,
        Self::Append,
        Self::Continue,
        Self::LeaveOut,
        Self::Close,
        Self::Disable,
        Self::Lower,
    ];

    /// Returns the stable name: `moved`, `merged`, ….
    pub const fn label(self) -> &'static str {
        match self {
            Self::Move => "moved",
            Self::Merge => "merged",
            Self::Restore => "restored",
            Self::Rename => "renamed",
            Self::Quote => "quoted",
            Self::Drop => "dropped",
            Self::Placeholder => "placeholder",
            Self::Fix => "fixed",
            Self::Rearrange => "rearranged",
            Self::Open => "opened",
            Self::Unbind => "unbound",
            Self::Append => "appended",
            Self::Continue => "continued",
            Self::LeaveOut => "left_out",
            Self::Close => "closed",
            Self::Disable => "disabled",
            Self::Lower => "lowered",
        }
    }

    /// Returns one sentence for a human, without ids.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Move => "a result that stood elsewhere was put after its call",
            Self::Merge => "results, or messages of one role, that were split over several messages were put into one",
            Self::Restore => "the real result, remembered or posted since, was put after its call",
            Self::Rename => "an id was replaced, for the call and its result alike",
            Self::Quote => "a result or a block that may not stand as such was kept as marked text",
            Self::Drop => {
                "a block was removed: an equal copy, half of a server tool's pair, or reasoning that the provider refuses"
            }
            Self::Placeholder => "a result was put in that says that there is none",
            Self::Fix => "a field was given a value that the provider takes",
            Self::Rearrange => {
                "words were put where the provider accepts them: in front of the calls of their message, after its results \
                 in a message of their own, or, if they are instructions, in a message of the user"
            }
            Self::Open => "a user's turn was put in front of the history",
            Self::Unbind => "the provider was asked to leave out thinking that is bound to another beginning",
            Self::Append => "a result that came late was put at the end of a message of the user's",
            Self::Continue => "reasoning, a signature or a container that the client had dropped was put back",
            Self::LeaveOut => {
                "a member, a parameter, a cache marker or a header that the provider refuses was left out"
            }
            Self::Close => "a user's message was put at the end, because the provider wants the user to speak last",
            Self::Disable => "thinking was switched off until the open tool calls are answered",
            Self::Lower => "the limit of the answer was lowered to what the provider leaves for it",
        }
    }
}

/// Findings and actions, without content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Every breach, in document order.
    pub findings: Vec<Finding>,
    /// The first calls that findings are about, at most three.
    pub broken_calls: Vec<BrokenCall>,
    /// Number of times that each action was taken. Other actions are absent.
    pub actions: BTreeMap<Action, usize>,
    /// Results left out of this body, because no message may contain them yet.
    pub deferred: usize,
    /// Findings that could not be repaired.
    pub unrepairable: usize,
    /// Ids that were replaced: (new, old).
    pub renamed: Vec<(String, String)>,
    /// Reason that an entry of a batch was left unchanged. `None` if all entries could be read.
    pub unread: Option<Unreadable>,
}

impl RepairReport {
    /// Returns the report of a body that is sent unchanged, or not at all.
    #[must_use]
    pub fn without_actions(self) -> Self {
        Self {
            findings: self.findings,
            broken_calls: self.broken_calls,
            unread: self.unread,
            ..Self::default()
        }
    }
}

/// A body after repair.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// The bytes to send. The very same handle if nothing changes.
    pub body: Segments,
    /// Findings and actions.
    pub report: RepairReport,
}

/// Repairs one body. Pure: the output is a function of the arguments.
pub fn repair(body: &Bytes, wire: Wire, policy: &RepairPolicy) -> Result<Repaired, Unreadable> {
    repair_with(body, wire, policy, &KnownResults::default())
}

/// Repairs one body with the known results of its calls.
pub fn repair_with(
    body: &Bytes,
    wire: Wire,
    policy: &RepairPolicy,
    known: &KnownResults,
) -> Result<Repaired, Unreadable> {
    let paired = parse(body, wire)?.pair(PairingContext::new(policy));
    let plan = plan(&paired, known, policy)?;
    Ok(Repaired {
        body: plan.splice(&paired, body)?,
        report: plan.report,
    })
}

/// Finds faults in `body` that some servers of its format refuse, although its provider is not known to.
///
/// They are repaired only after such a refusal. None is among the findings of [`check`].
pub fn possible_findings(body: &[u8], wire: Wire, policy: &RepairPolicy) -> Result<Vec<Finding>, Unreadable> {
    let strict = LearnedRules {
        strict_calls: true,
        words: Some(WordsPlace::BeforeCalls),
        ..LearnedRules::NONE
    };
    let learned = match wire.pairing_rules().words {
        WordsPlace::Anywhere => strict,
        // The dialect's own rule is known, and its breaches are findings.
        _ => LearnedRules { words: None, ..strict },
    };
    let context = PairingContext {
        learned,
        applies_unproven: true,
        ..PairingContext::new(policy)
    };
    let found = check(body, wire, policy)?;
    let paired = parse(body, wire)?.pair(context);
    let all = paired.findings()?;
    work::count(found.len().saturating_add(all.len()));
    // Not by equality: the strict rules may see another fault of the same call.
    let place = |finding: &Finding| (finding.kind, finding.message, finding.part);
    let known: HashSet<_> = found.iter().map(place).collect();
    let is_news = |finding: &Finding| {
        let of_servers = matches!(
            finding.kind,
            FindingKind::MalformedCall
                | FindingKind::MisplacedWords
                | FindingKind::Duplicate
                | FindingKind::DuplicateCall
                | FindingKind::NoId
        );
        of_servers && !known.contains(&place(finding))
    };
    let mut notes: Vec<Finding> = all.into_iter().filter(is_news).collect();
    notes.extend(lone_surrogates::lone_surrogates(&paired));
    // The sort is stable, so the notes of one message keep their order.
    notes.sort_by_key(|note| note.message);
    Ok(notes)
}

/// Reads and checks one body.
///
/// A body without findings need not be JSON in bytes that the scan skips, as [`Wire::read`] explains.
pub fn check(body: &[u8], wire: Wire, policy: &RepairPolicy) -> Result<Vec<Finding>, Unreadable> {
    let parsed = parse(body, wire)?;
    parsed.pair(PairingContext::new(policy)).findings()
}
