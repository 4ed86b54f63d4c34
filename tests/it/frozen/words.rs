//! Pins the closed word lists of headers, log lines, metrics, error codes and JSON answers.

use antiphon::{
    conversation::{CallFault, FindingKind, FlawKind, InputFault, NameFault},
    keys::credential_source::SourceFailure,
    late::records::{PostRefusal, RecordedCallState, TIERS},
    ledger::RecordKind,
    policy::ProfileState,
    policy::{Class, CooldownReason, Observation, Side, breaker, classify, stream_timeouts},
    provider::{BUILT_IN, ProviderKind, RESERVED_NAMES},
    proxy::RequestRefusal,
    repair::{Action, Mode, Tier},
    session::{SessionSource, SessionStrength},
    session_table::DetachReason,
    wire::{Format, Unreadable, Wire, watch::stop_labels},
};

use crate::frozen::{
    errors::{KINDS, PHASES},
    golden::same,
};

/// Returns the classes that put a profile into cooldown, in the order of their reasons.
pub(crate) fn cooldown_classes() -> impl Iterator<Item = Class> {
    let classes = CLASSES.into_iter();
    classes.filter(|class| class.cooldown_reason().is_some())
}

/// Every class of an attempt.
pub(crate) const CLASSES: [Class; 36] = [
    Class::Success,
    Class::Auth,
    Class::Billing,
    Class::SpendLimit,
    Class::Quota,
    Class::Permission,
    Class::RateLimit,
    Class::Overloaded,
    Class::ProviderFault,
    Class::ProviderTimeout,
    Class::Request,
    Class::Affinity,
    Class::NotFound,
    Class::Conflict,
    Class::TooLarge,
    Class::Filtered,
    Class::Unreachable,
    Class::Handshake,
    Class::Certificate,
    Class::Interrupted,
    Class::Headless,
    Class::Malformed,
    Class::NotAnAnswer,
    Class::Parked { queued: true },
    Class::Stalled,
    Class::ServerTool,
    Class::Compaction,
    Class::Broken,
    Class::Upload,
    Class::ClientGone,
    Class::ClientGaveUp,
    Class::ClientStalled,
    Class::Exhausted,
    Class::Deadline,
    Class::Unavailable,
    Class::Refused,
];

const FLAWS: [FlawKind; 17] = [
    flaw_of_input(InputFault::Empty),
    flaw_of_input(InputFault::Text),
    flaw_of_input(InputFault::NotJson),
    flaw_of_input(InputFault::NotObject),
    flaw_of_input(InputFault::NotText),
    flaw_of_name(NameFault::Illegal),
    flaw_of_name(NameFault::Missing),
    FlawKind::BlankText,
    FlawKind::EmptyMessage,
    FlawKind::ErrorWithoutContent,
    FlawKind::EmptyCalls,
    FlawKind::ResultKind,
    FlawKind::ResultContent,
    FlawKind::InputPart,
    FlawKind::EmptyPart,
    FlawKind::RepeatedItemId,
    FlawKind::SplitTurn,
];

const fn flaw_of_input(fault: InputFault) -> FlawKind {
    FlawKind::Call(CallFault {
        input: Some(fault),
        name: None,
    })
}

const fn flaw_of_name(fault: NameFault) -> FlawKind {
    FlawKind::Call(CallFault {
        input: None,
        name: Some(fault),
    })
}

const SOURCES: [SessionSource; 9] = [
    SessionSource::Antiphon,
    SessionSource::ClaudeCode,
    SessionSource::UserId,
    SessionSource::Header,
    SessionSource::Conversation,
    SessionSource::Answer,
    SessionSource::Calls,
    SessionSource::CacheKey,
    SessionSource::History,
];

/// The words, in list order.
#[derive(Default)]
struct Words(String);

impl Words {
    fn list<'w>(&mut self, name: &str, words: impl IntoIterator<Item = &'w str>) {
        for word in words {
            self.0.push_str(&format!("{name}: {word}\n"));
        }
    }
}

/// Returns codes of failures that are more specific than their class.
fn codes() -> Vec<String> {
    let mut evidence: Vec<Observation<'_>> = Vec::new();
    for (_, phase) in PHASES {
        evidence.extend(KINDS.map(|(_, kind)| Observation::SendFailed(phase, kind)));
    }
    for (whole, broken) in [(false, true), (false, false), (true, false)] {
        evidence.push(Observation::BodyEnded {
            is_complete: whole,
            is_broken: broken,
        });
    }
    for clock in [
        stream_timeouts::TimeoutKind::Bytes,
        stream_timeouts::TimeoutKind::Progress,
        stream_timeouts::TimeoutKind::Reasoning,
    ] {
        let state = stream_timeouts::StreamState::default();
        evidence.push(Observation::TimedOut { timeout: clock, state });
    }
    let told = |evidence: &Observation<'_>| {
        let verdict = classify(*evidence);
        format!("{} ({})", verdict.code, verdict.class.label())
    };
    let mut codes: Vec<String> = evidence.iter().map(told).collect();
    codes.sort();
    codes.dedup();
    codes
}

fn of_repair(words: &mut Words) {
    words.list("format", Format::ALL.map(Format::label));
    words.list("wire", Wire::NAMES.iter().map(|(name, _)| *name));
    let aliases: Vec<String> = Wire::ALIASES
        .iter()
        .map(|(alias, name)| format!("{alias} = {name}"))
        .collect();
    words.list("wire alias", aliases.iter().map(String::as_str));
    words.list("finding kind", FindingKind::ALL.map(FindingKind::code));
    words.list(
        "finding detail",
        FLAWS.map(FlawKind::code).into_iter().chain(["held_by_the_provider"]),
    );
    words.list("action", Action::ALL.map(Action::label));
    words.list("unreadable reason", Unreadable::ALL.map(Unreadable::code));
    words.list("mode", [Mode::Repair, Mode::Strict, Mode::Observe].map(Mode::label));
}

/// Every failure of a credential's source.
const SOURCE_FAILURES: [SourceFailure; 10] = [
    SourceFailure::NotStarted,
    SourceFailure::ExitStatus(1),
    SourceFailure::Signalled,
    SourceFailure::TimedOut,
    SourceFailure::TooLong,
    SourceFailure::Unreadable,
    SourceFailure::Expired,
    SourceFailure::Unreachable,
    SourceFailure::HttpStatus(403),
    SourceFailure::EndpointToken,
];

fn of_attempts(words: &mut Words) {
    words.list("credential failure", SOURCE_FAILURES.map(SourceFailure::label));
    words.list("side", Side::ALL.map(Side::label));
    words.list("rest reason", CooldownReason::ALL.map(CooldownReason::label));
    words.list("profile state", ProfileState::ALL.map(ProfileState::label));
    words.list(
        "breaker state",
        breaker::BreakerState::ALL.map(breaker::BreakerState::label),
    );
    for class in CLASSES {
        let side = class.fault_side().map_or("-", Side::label);
        let reason = class.cooldown_reason().map_or("-", CooldownReason::label);
        words.list(
            "class",
            [format!("{} side={side} rest={reason}", class.label()).as_str()],
        );
    }
    words.list("code of a class", codes().iter().map(String::as_str));
    for refusal in RequestRefusal::ALL {
        words.list(
            "refusal",
            [format!("{} {}", refusal.label(), refusal.status().as_u16()).as_str()],
        );
    }
    for format in Format::ALL {
        words.list(&format!("stop of {}", format.label()), stop_labels(format));
    }
}

fn of_routes(words: &mut Words) {
    words.list("upstream kind", ProviderKind::ALL.map(ProviderKind::label));
    for row in BUILT_IN {
        let (name, url) = (row.name, row.url.unwrap_or("-"));
        let row = format!(
            "{name} {} {url} credential={}",
            row.kind.label(),
            row.kind.credential_header()
        );
        words.list("built-in upstream", [row.as_str()]);
    }
    words.list("reserved name", RESERVED_NAMES.iter().copied());
}

fn of_the_ledger(words: &mut Words) {
    words.list("detached", DetachReason::ALL.map(DetachReason::label));
    // The position in a list is a byte in ledger files.
    for kind in RecordKind::ALL {
        words.list("record kind", [format!("{} {}", kind as u8, kind.label()).as_str()]);
    }
    for (number, state) in RecordedCallState::ALL.iter().enumerate() {
        words.list("call state", [format!("{number} {}", state.label()).as_str()]);
    }
    for (number, why) in PostRefusal::ALL.iter().enumerate() {
        words.list("evidence", [format!("{number} {}", why.label()).as_str()]);
    }
    for (number, tier) in TIERS.iter().enumerate() {
        let name = match tier {
            Tier::Read => "read",
            Tier::Revertible => "revertible",
            Tier::Durable => "durable",
            Tier::OneWay => "one_way",
        };
        words.list("tier", [format!("{number} {name}").as_str()]);
    }
    for source in SOURCES {
        let strength = if source.strength() == SessionStrength::Strong {
            "strong"
        } else {
            "weak"
        };
        words.list("session source", [format!("{} {strength}", source.label()).as_str()]);
    }
}

#[test]
fn closed_word_lists_are_pinned() {
    let mut words = Words::default();
    of_repair(&mut words);
    of_attempts(&mut words);
    of_routes(&mut words);
    of_the_ledger(&mut words);
    same("words.txt", &words.0);
}
