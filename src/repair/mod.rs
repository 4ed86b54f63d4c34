//! From findings to a plan: what will be done about each breach of the pairing rules, and a report of it.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{
    conversation::{
        Conversation, Finding, Outline,
        pairing::pair,
        rules::{PairingRules, Unique},
    },
    splice::{Edit, EditList, Segments},
    wire::{
        Entry, Unreadable, Wire,
        json::{Json, validate},
    },
};

mod answers;
mod append;
mod blocks;
mod edits;
mod entries;
mod equal;
mod held;
mod ids;
mod insist;
mod kept;
mod labels;
mod messages;
mod naming;
mod plan;
mod policy;
mod salvage;
mod second;
mod sight;
mod steps;
mod views;
mod words;

pub use answers::{Answers, CallSight, Frozen, NoAnswers, RealResult, Spelling};
pub use append::{Anchor, Place, append, late_text, places};
pub use edits::edits;
pub use kept::{Brought, asked_hash, bare, brought, cut, names_call};
pub use naming::{CallKey, input_hash, is_strong, letters};
pub use plan::{Plan, plan};
pub use policy::{Applicability, Mode, OnLate, RepairPolicy, Tier};
pub use second::{second, unbound};
pub use views::{CallView, InBody, Said, Views, views};
pub use words::Placeholder;

use insist::Insistence;

/// What was done about a finding. The names are stable: metric labels and the `x-antiphon-repair` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// A real result was put behind its call.
    Move,
    /// Results split over messages were put into one.
    Merge,
    /// The ledger's real result was put in.
    Restore,
    /// An id was replaced, for call and result alike, or a result was given the id it lacked.
    Rename,
    /// A result was kept as marked user text.
    Quote,
    /// A block was removed: an equal duplicate or half of a server tool pair.
    Drop,
    /// A result was invented that says so.
    Placeholder,
    /// A field was given a value that the provider takes.
    Fix,
    /// A constant user turn was put in front.
    Open,
    /// The provider was told to drop thinking that it has bound to another prefix.
    Unbind,
    /// A late result was put at the end of a message of the user's.
    Append,
}

impl Action {
    /// Every action, in the order of the header.
    pub const ALL: [Self; 11] = [
        Self::Move,
        Self::Merge,
        Self::Restore,
        Self::Rename,
        Self::Quote,
        Self::Drop,
        Self::Placeholder,
        Self::Fix,
        Self::Open,
        Self::Unbind,
        Self::Append,
    ];

    /// The stable name: `moved`, `merged`, ….
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
            Self::Open => "opened",
            Self::Unbind => "unbound",
            Self::Append => "appended",
        }
    }

    /// One sentence for a human, without ids.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Move => "a result that stood elsewhere was put behind its call",
            Self::Merge => "results that were split over several messages were put into one",
            Self::Restore => "the real result, remembered or posted since, was put behind its call",
            Self::Rename => "an id was replaced, for the call and its result alike",
            Self::Quote => "a result that may not stand as such was kept as marked text",
            Self::Drop => {
                "a block was left out that says nothing of its own: an equal copy, or half of a server tool's pair"
            }
            Self::Placeholder => "a result was put in that says that there is none",
            Self::Fix => "a field was given a value that the provider takes",
            Self::Open => "a user's turn was put in front of the history",
            Self::Unbind => "the provider was asked to leave out thinking that is bound to another beginning",
            Self::Append => "a result that came late was put at the end of a message of the user's",
        }
    }
}

/// What was found and what was done, without content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Every breach, in document order.
    pub findings: Vec<Finding>,
    /// How often each action was taken; only actions that were.
    pub actions: BTreeMap<Action, usize>,
    /// Results that no message may hold yet: left out of this body.
    pub deferred: usize,
    /// Findings that nothing may be done about.
    pub unrepairable: usize,
    /// Ids that were replaced: (new, old).
    pub renamed: Vec<(String, String)>,
    /// Why a request inside the body was left as it came, where one could not be read.
    pub unread: Option<Unreadable>,
}

impl Report {
    /// The report of a body that goes up as it came, or not at all: what was found, nothing done.
    #[must_use]
    pub fn without_actions(self) -> Self {
        Self {
            findings: self.findings,
            unread: self.unread,
            ..Self::default()
        }
    }
}

/// A body after repair.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// The bytes to send; the very same handle where there was nothing to do.
    pub body: Segments,
    /// What was found and done.
    pub report: Report,
    /// What the body as it came says beside pairing; of a body that holds several requests, of nothing.
    pub outline: Outline,
}

/// Reads, checks, plans and splices one body. Pure: the output is a function of the arguments.
pub fn repair(body: &Bytes, wire: Wire, policy: &RepairPolicy) -> Result<Repaired, Unreadable> {
    repair_with(body, wire, policy, &NoAnswers)
}

/// As [`repair`], with what is remembered of the calls in the body.
pub fn repair_with(
    body: &Bytes,
    wire: Wire,
    policy: &RepairPolicy,
    answers: &dyn Answers,
) -> Result<Repaired, Unreadable> {
    repair_learned(body, wire, policy, answers, &Learned::default())
}

/// What a provider's refusal taught of one body.
#[derive(Debug, Default)]
struct Learned<'r> {
    /// The refusal.
    insistence: Option<Insistence<'r>>,
    /// Whether thinking that is bound to another prefix may be dropped.
    drop_bound: bool,
}

fn repair_learned(
    body: &Bytes,
    wire: Wire,
    policy: &RepairPolicy,
    answers: &dyn Answers,
    learned: &Learned<'_>,
) -> Result<Repaired, Unreadable> {
    answers.begins();
    let Mended {
        mut edits,
        mut report,
        outline,
    } = mend(body, wire, policy, answers, learned.insistence.as_ref())?;
    if learned.drop_bound
        && let Some(edit) = wire.format.drop_bound(Json::new(body))
    {
        validate(body)?;
        edits.push(edit);
        report.actions.insert(Action::Unbind, 1);
    }
    if edits.is_empty() {
        return Ok(Repaired {
            body: Segments::whole(body.clone()),
            report,
            outline,
        });
    }
    match EditList::new(edits, body.len()) {
        Ok(list) => Ok(Repaired {
            body: list.apply(body),
            report,
            outline,
        }),
        // A bug of ours: the provider judges the original.
        Err(_) => Err(Unreadable::Overlap),
    }
}

/// Reads and checks one body. A body without findings need not be JSON where nobody looked: see [`Wire::read`].
pub fn check(body: &[u8], wire: Wire, policy: &RepairPolicy) -> Result<Vec<Finding>, Unreadable> {
    let conversation = wire.read(body)?;
    let Some(entries) = requests(&conversation, wire)? else {
        return findings(&conversation, wire, policy);
    };
    let of = |entry: &Entry| {
        let conversation = wire.read(entry.span.of(body));
        let found = conversation.and_then(|conversation| findings(&conversation, wire, policy));
        entries::placed(found.unwrap_or_default(), &entry.path)
    };
    let findings: Vec<Finding> = entries.iter().flat_map(of).collect();
    if !findings.is_empty() {
        validate(body)?;
    }
    Ok(findings)
}

fn findings(conversation: &Conversation<'_>, wire: Wire, policy: &RepairPolicy) -> Result<Vec<Finding>, Unreadable> {
    let findings = pair(conversation, rules(wire, policy)).findings(conversation, policy.hygiene);
    if !findings.is_empty() {
        validate(conversation.body)?;
    }
    Ok(findings)
}

/// The edits of one body, and what they are for.
#[derive(Debug, Default)]
struct Mended {
    edits: Vec<Edit>,
    report: Report,
    outline: Outline,
}

fn mend(
    body: &[u8],
    wire: Wire,
    policy: &RepairPolicy,
    answers: &dyn Answers,
    insistence: Option<&Insistence<'_>>,
) -> Result<Mended, Unreadable> {
    let conversation = wire.read(body)?;
    let one = |conversation| mend_one(conversation, wire, policy, answers, insistence);
    let Some(entries) = requests(&conversation, wire)? else {
        return one(conversation);
    };
    let whole = entries::together(&entries, |entry| wire.read(entry.span.of(body)).and_then(one));
    if !whole.report.findings.is_empty() {
        validate(body)?;
    }
    Ok(whole)
}

/// Mends one history. What was found may be an accident of bytes that are no JSON: such a body is never spliced, nor
/// judged.
fn mend_one(
    mut conversation: Conversation<'_>,
    wire: Wire,
    policy: &RepairPolicy,
    answers: &dyn Answers,
    insistence: Option<&Insistence<'_>>,
) -> Result<Mended, Unreadable> {
    let outline = Outline::of(&conversation);
    let mut rules = rules(wire, policy);
    if let Some(insistence) = insistence {
        rules = insistence.rules(rules);
        insistence.read_again(&mut conversation);
    }
    held::disown(&mut conversation, answers);
    let mut pairing = pair(&conversation, rules);
    if let Some(insistence) = insistence {
        insistence.judge(&conversation, &mut pairing);
    }
    let mut plan = plan(&conversation, &pairing, rules, answers, policy);
    if policy.least <= Applicability::Inventive {
        plan.answer_held(held::calls(&conversation, answers, insistence, wire.format));
    }
    if !plan.report.findings.is_empty() || !plan.report.actions.is_empty() {
        validate(conversation.body)?;
    }
    let mut done = Vec::new();
    if !plan.report.actions.is_empty() || plan.report.deferred > 0 {
        let list = edits(&plan, &pairing, &conversation, wire).map_err(|_| Unreadable::Overlap)?;
        done = list.into_edits();
    }
    Ok(Mended {
        edits: done,
        report: plan.report,
        outline,
    })
}

/// The format's rules, as far as this upstream is known.
fn rules(wire: Wire, policy: &RepairPolicy) -> PairingRules {
    let rules = wire.rules();
    let learned = policy.unique_ids && rules.unique != Unique::Nowhere;
    PairingRules {
        unique: if learned { Unique::Body } else { rules.unique },
        ..rules
    }
}

/// The requests inside a body without a history of its own: each is repaired by itself, and holds no further ones.
fn requests(conversation: &Conversation<'_>, wire: Wire) -> Result<Option<Vec<Entry>>, Unreadable> {
    if conversation.array.is_some() {
        return Ok(None);
    }
    let entries = wire.format.entries(conversation.body)?;
    Ok(Some(entries).filter(|entries| !entries.is_empty()))
}
