//! The search of requests upstream for results of other callers or calls, duplicates, and changed prefixes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    canary::{Canary, canaries, misplaced},
    judge::{self, Refusal},
    talker::Talker,
};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// A caller received another caller's result.
    Crossing,
    /// A result of a call outside the conversation.
    Stray,
    /// A result at another call.
    Misplaced,
    /// A result twice in one request.
    Twice,
    /// A request that the provider refuses.
    Refused,
    /// A request that does not begin with the earlier one.
    Prefix,
    /// A posted result that was not restored.
    Lost,
    /// An answer of the ledger API that the model does not expect.
    Answer,
}

/// Optional behaviour of clients and services.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// `true` if services post under weak ids and name the owner.
    pub weak_owners: bool,
    /// `true` if users and models repeat their words.
    pub repeats: bool,
    /// `true` if calls of one tool have equal inputs.
    pub same_inputs: bool,
}

/// Faults, and counted events.
pub type Found = (Vec<(Wrong, String)>, Vec<&'static str>);

/// Searches the body upstream for this caller's `body`.
pub fn searched(talker: &Talker, body: &str, sent: &Value, refused: Option<&Refusal>) -> Found {
    let brought: Vec<Canary> = canaries(body);
    let (mut wrong, mut counts) = (Vec::new(), Vec::new());
    let mut times: BTreeMap<Canary, usize> = BTreeMap::new();
    for canary in canaries(&sent.to_string()) {
        *times.entry(canary).or_default() += 1;
    }
    for (canary, times) in &times {
        let own = brought.iter().filter(|known| *known == canary).count();
        if canary.who != talker.who {
            wrong.push((Wrong::Crossing, format!("{canary:?}")));
        } else if own == 0 && !talker.owns(*canary) {
            wrong.push((Wrong::Stray, format!("{canary:?}")));
        }
        if *times > own.max(1) {
            wrong.push((Wrong::Twice, format!("{canary:?} {times} times")));
        }
        if own == 0 && canary.kind == 's' {
            counts.push("came back");
        }
    }
    for (kind, text) in judge::texts(sent).into_keys() {
        for _ in canaries(&text).iter().filter(|canary| canary.kind == 'p') {
            counts.push(match (kind, talker.chat) {
                (judge::Kind::Result, false) => "restored",
                (judge::Kind::Result, true) => "restored in chat",
                (judge::Kind::User, false) => "appended",
                (judge::Kind::User, true) => "appended in chat",
                _ => "elsewhere",
            });
        }
    }
    match refused {
        Some(refusal) => wrong.push((Wrong::Refused, refusal.message.clone())),
        None => wrong.extend(
            misplaced(sent, &talker.asked())
                .into_iter()
                .map(|told| (Wrong::Misplaced, told)),
        ),
    }
    if let Some(prefix) = talker.prefix() {
        counts.push("prefixes");
        let now = judge::blocks(sent);
        if let Some(place) = (0..prefix.len()).find(|place| now.get(*place) != prefix.get(*place)) {
            let told = format!("block {place}: {:?} was {:?}", now.get(place), prefix.get(place));
            wrong.push((Wrong::Prefix, told));
        }
    }
    (wrong, counts)
}
