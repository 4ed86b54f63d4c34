//! The effect of each finding on each client, as measured: by damage, client and version.

use super::{
    client::{ClientVersion, SessionClient},
    damage::{Damage, SessionCode},
};
use crate::{conversation::FindingKind, labels::labelled_enum};

labelled_enum! {
    /// The weight of a finding for one client.
    pub enum Severity {
        /// This version of the client copes with it.
        Note = "note",
        /// The client leaves something out, and says nothing.
        Warning = "warning",
        /// The session is not loaded, or its next request is refused.
        Error = "error",
    }
}

/// The effect of one finding on some versions of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The finding.
    pub code: SessionCode,
    /// The client.
    pub client: SessionClient,
    /// The first version that does so. `None` for all before `until`.
    pub from: Option<ClientVersion>,
    /// The first version that no longer does so. `None` if the newest one does.
    pub until: Option<ClientVersion>,
    /// The weight.
    pub severity: Severity,
    /// The effect, as the end of a sentence: "the client skips both".
    pub effect: &'static str,
    /// Versions that were tried, and the month.
    pub measured: &'static str,
}

/// All that was measured. The first row that fits counts.
pub const MEASURED: &[Measured] = &[
    // Codex
    codex_damage(
        Damage::NulBytes,
        Severity::Warning,
        "the client skips a record behind them, and answers its call with `aborted`",
    ),
    codex_damage(
        Damage::ByteOrderMark,
        Severity::Error,
        "the client does not load the session",
    ),
    codex_damage(
        Damage::InvalidUtf8,
        Severity::Warning,
        "the client skips the record; with the first one it does not load the session",
    ),
    codex_damage(
        Damage::LoneSurrogate,
        Severity::Warning,
        "the client skips the record, and answers its call with `aborted`",
    ),
    codex_damage(
        Damage::TornRecord,
        Severity::Warning,
        "the client skips a record behind it, and answers its call with `aborted`",
    ),
    codex_damage(
        Damage::JoinedRecords,
        Severity::Warning,
        "the client skips all of them, and answers their calls with `aborted`",
    ),
    codex_damage(
        Damage::RawNewline,
        Severity::Warning,
        "the client skips the record, and answers its call with `aborted`",
    ),
    codex_damage(
        Damage::RepeatedRecord,
        Severity::Error,
        "the client sends it twice, and the provider refuses a second output",
    ),
    codex_damage(
        Damage::EmptyFile,
        Severity::Error,
        "the client does not load the session",
    ),
    codex_damage(
        Damage::OrdinalMissing,
        Severity::Error,
        "the client does not load the session if it is the last record",
    ),
    codex_damage(
        Damage::OrdinalTwice,
        Severity::Warning,
        "the client sends all of it, and its list of turns may stop there",
    ),
    codex_damage(
        Damage::SessionMetaMissing,
        Severity::Error,
        "the client does not load the session",
    ),
    codex_damage(
        Damage::ProjectionBehind,
        Severity::Warning,
        "the client sends all of it, and its list of turns stops there",
    ),
    codex_pairing(
        FindingKind::Unanswered,
        Severity::Note,
        "the client answers it with `aborted` in each request",
    ),
    codex_pairing(
        FindingKind::Orphan,
        Severity::Warning,
        "the client leaves the result out",
    ),
    codex_pairing(
        FindingKind::Duplicate,
        Severity::Error,
        "the client sends both, and the provider refuses the request",
    ),
    codex_pairing(
        FindingKind::DuplicateCall,
        Severity::Note,
        "the client sends both, which some servers refuse",
    ),
    codex_pairing(
        FindingKind::MalformedCall,
        Severity::Warning,
        "the client leaves the call and its result out, or sends an input that some servers refuse",
    ),
    codex_pairing(FindingKind::NoId, Severity::Warning, "the client leaves the result out"),
    codex_pairing(
        FindingKind::Field,
        Severity::Warning,
        "the client leaves a result out, or the provider refuses reasoning in open text",
    ),
];

const fn codex_damage(damage: Damage, severity: Severity, effect: &'static str) -> Measured {
    codex_row(SessionCode::Damage(damage), severity, effect)
}

const fn codex_pairing(kind: FindingKind, severity: Severity, effect: &'static str) -> Measured {
    codex_row(SessionCode::Pairing(kind), severity, effect)
}

const fn codex_row(code: SessionCode, severity: Severity, effect: &'static str) -> Measured {
    Measured {
        code,
        client: SessionClient::Codex,
        from: None,
        until: None,
        severity,
        effect,
        measured: "0.171, 2026-11",
    }
}

/// Returns the effect of a finding on a version of a client. `None` if nothing was measured: then it is a warning.
pub fn severity_of(
    code: SessionCode,
    client: SessionClient,
    version: Option<ClientVersion>,
) -> Option<&'static Measured> {
    let mut rows = MEASURED.iter().filter(|row| row.code == code && row.client == client);
    // Without a version the newest one is meant.
    rows.find(|row| match version {
        Some(version) => row.from.is_none_or(|from| version >= from) && row.until.is_none_or(|until| version < until),
        None => row.until.is_none(),
    })
}
