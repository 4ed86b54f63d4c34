//! What must not be in what went upstream: results of others, of other calls, twice, or where they were not before.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    canary::{Canary, canaries, misplaced},
    judge::{self, Refusal},
    talker::Talker,
};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// Somebody was given what is another's.
    Crossing,
    /// A result of a call that is not in the conversation.
    Stray,
    /// A result that stands with another call.
    Misplaced,
    /// A result twice in one request.
    Twice,
    /// The provider refuses what was sent.
    Refused,
    /// What the provider was sent before is not the beginning of what it is sent now.
    Prefix,
    /// A posted result that was not restored.
    Lost,
    /// Not the answer that the model expects.
    Answer,
}

/// What they do besides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// Services post under ids that come again, and say whose they are.
    pub weak_owners: bool,
    /// Users and models say the same again.
    pub repeats: bool,
    /// Calls of one tool ask for the same.
    pub same_inputs: bool,
}

/// What is wrong, and what happened.
pub type Found = (Vec<(Wrong, String)>, Vec<&'static str>);

/// Searches what went upstream for a body that this caller sent.
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
