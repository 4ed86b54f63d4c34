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
    // Claude Code: the file.
    claude(
        Damage::NulBytes,
        Since::All,
        Severity::Warning,
        "the client passes over them, and skips a record that stands on the same line",
    ),
    claude(
        Damage::ByteOrderMark,
        Since::All,
        Severity::Note,
        "the client reads the file all the same",
    ),
    claude(
        Damage::InvalidUtf8,
        Since::All,
        Severity::Note,
        "the client replaces the byte",
    ),
    claude(
        Damage::LoneSurrogate,
        Since::New,
        Severity::Note,
        "the client replaces it before it sends the text",
    ),
    claude(
        Damage::LoneSurrogate,
        Since::Old,
        Severity::Error,
        "the client sends it as it is, and the provider refuses every request",
    ),
    claude(
        Damage::TornRecord,
        Since::First,
        Severity::Error,
        "the client skips the line, and its first request may be refused",
    ),
    claude(
        Damage::TornRecord,
        Since::New,
        Severity::Warning,
        "the client skips the line, with any record behind the fragment, and the call or result that belongs to it",
    ),
    claude(
        Damage::TornRecord,
        Since::Old,
        Severity::Warning,
        "the client skips the line, and sends nothing of what stands before it",
    ),
    claude(
        Damage::JoinedRecords,
        Since::New,
        Severity::Warning,
        "the client skips them all, and the calls and results that belong to them",
    ),
    claude(
        Damage::JoinedRecords,
        Since::Old,
        Severity::Warning,
        "the client skips them all, and sends nothing of what stands before them",
    ),
    claude(
        Damage::RawNewline,
        Since::New,
        Severity::Warning,
        "the client skips the record, and the call or result that belongs to it",
    ),
    claude(
        Damage::RawNewline,
        Since::Old,
        Severity::Warning,
        "the client skips the record, and sends nothing of what stands before it",
    ),
    claude(
        Damage::RepeatedRecord,
        Since::All,
        Severity::Note,
        "the client sends it once",
    ),
    // Claude Code: the links.
    claude(
        Damage::LostParent,
        Since::New,
        Severity::Note,
        "the client goes on with the record before it in the file",
    ),
    claude(
        Damage::LostParent,
        Since::Old,
        Severity::Warning,
        "the client sends nothing of what stands before it",
    ),
    claude(
        Damage::ParentInSubagent,
        Since::All,
        Severity::Warning,
        "the client sends what the sub-agent said instead of what stands before the record",
    ),
    claude(
        Damage::UuidTwice,
        Since::New,
        Severity::Warning,
        "the client sends the last of the two, and leaves the other out",
    ),
    claude(
        Damage::UuidTwice,
        Since::First,
        Severity::Error,
        "the client goes in a circle there, and may never end",
    ),
    claude(
        Damage::UuidTwice,
        Since::Old,
        Severity::Warning,
        "the client goes in a circle there, and sends nothing of what stands before",
    ),
    claude(
        Damage::ParentCircle,
        Since::New,
        Severity::Note,
        "the client goes on with the record before it in the file",
    ),
    claude(
        Damage::ParentCircle,
        Since::First,
        Severity::Error,
        "the client goes in the circle, and never ends",
    ),
    claude(
        Damage::ParentCircle,
        Since::Old,
        Severity::Warning,
        "the client sends nothing of what stands before it",
    ),
    claude(
        Damage::Fork,
        Since::All,
        Severity::Warning,
        "the client sends one of the two branches, and leaves the other out",
    ),
    claude(
        Damage::Rewound,
        Since::All,
        Severity::Note,
        "the client sends the branch that the user went on with",
    ),
    // Claude Code: calls and results.
    claude(
        Damage::HiddenResult,
        Since::All,
        Severity::Warning,
        "the client sends the other one, which says that there is no result",
    ),
    claude(
        Damage::OpenCall,
        Since::New,
        Severity::Note,
        "the client answers the call itself, with the words that its outcome is unknown",
    ),
    claude(
        Damage::OpenCall,
        Since::Old,
        Severity::Warning,
        "the client leaves the call out",
    ),
    claude_pair(
        FindingKind::Unanswered,
        Since::All,
        Severity::Warning,
        "the client leaves the call out",
    ),
    claude_pair(
        FindingKind::Orphan,
        Since::First,
        Severity::Error,
        "the client sends it, and the provider refuses every request",
    ),
    claude_pair(
        FindingKind::Orphan,
        Since::Later,
        Severity::Warning,
        "the client leaves the result out",
    ),
    claude_pair(
        FindingKind::Duplicate,
        Since::New,
        Severity::Note,
        "the client sends the first of the results",
    ),
    claude_pair(
        FindingKind::Duplicate,
        Since::Old,
        Severity::Error,
        "the client may send them all, and then the provider refuses the request",
    ),
    claude_pair(
        FindingKind::MalformedCall,
        Since::All,
        Severity::Error,
        "the client sends it as it is, and the provider refuses every request",
    ),
    claude_pair(
        FindingKind::ForeignThinking,
        Since::New,
        Severity::Note,
        "the client leaves it out once the provider has refused it",
    ),
    claude_pair(
        FindingKind::ForeignThinking,
        Since::Old,
        Severity::Error,
        "the client sends it as it is, and the provider refuses every request",
    ),
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
        Damage::ProjectionAhead,
        Severity::Warning,
        "the client sends all of it, and its list lacks what is written until the numbers meet",
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
    // Copilot CLI, which goes by the order of the file.
    copilot(
        Damage::NulBytes,
        Severity::Warning,
        "the client skips a record that stands on the same line; with the first one it does not load the session",
    ),
    copilot(
        Damage::ByteOrderMark,
        Severity::Note,
        "the client reads the file all the same",
    ),
    copilot(
        Damage::InvalidUtf8,
        Severity::Warning,
        "the client skips the record; with the first one it does not load the session",
    ),
    copilot(
        Damage::LoneSurrogate,
        Severity::Note,
        "the client replaces it before it sends the text",
    ),
    copilot(
        Damage::TornRecord,
        Severity::Warning,
        "the client skips the line, with any record behind the fragment; with the first one it does not load the session",
    ),
    copilot(
        Damage::JoinedRecords,
        Severity::Warning,
        "the client skips them all, and answers their calls as interrupted",
    ),
    copilot(Damage::RawNewline, Severity::Warning, "the client skips the record"),
    copilot(
        Damage::RepeatedRecord,
        Severity::Error,
        "the client sends a call twice, and the provider refuses every request; a result it sends once",
    ),
    copilot(
        Damage::EmptyFile,
        Severity::Error,
        "the client does not find the session",
    ),
    copilot(
        Damage::SessionMetaMissing,
        Severity::Error,
        "the client does not load the session",
    ),
    copilot(
        Damage::OpenCall,
        Severity::Note,
        "the client answers the call itself, with the words that it was interrupted",
    ),
    copilot_pair(
        FindingKind::Unanswered,
        Severity::Note,
        "the client answers the call itself, with the words that it was interrupted",
    ),
    copilot_pair(
        FindingKind::Orphan,
        Severity::Warning,
        "the client leaves the result out",
    ),
    copilot_pair(
        FindingKind::Duplicate,
        Severity::Note,
        "the client sends the first of the results",
    ),
    copilot_pair(
        FindingKind::MalformedCall,
        Severity::Error,
        "the client does not load a session with a call that has no id",
    ),
    copilot_pair(
        FindingKind::NoId,
        Severity::Error,
        "the client does not load the session",
    ),
    copilot_pair(
        FindingKind::DuplicateCall,
        Severity::Error,
        "the client sends both, and the provider refuses every request",
    ),
    // Qwen Code, which goes back from the last record, link by link.
    qwen(
        Damage::NulBytes,
        Severity::Note,
        "the client takes a record that stands on the same line out of it",
    ),
    qwen(
        Damage::ByteOrderMark,
        Severity::Note,
        "the client reads the file all the same",
    ),
    qwen(Damage::InvalidUtf8, Severity::Note, "the client replaces the byte"),
    qwen(
        Damage::LoneSurrogate,
        Severity::Error,
        "the client sends it as it is, and the provider refuses every request",
    ),
    qwen(
        Damage::TornRecord,
        Severity::Warning,
        "the client skips the line; if a record was lost by it, nothing of what stands before it is sent",
    ),
    qwen(Damage::JoinedRecords, Severity::Note, "the client reads all of them"),
    qwen(
        Damage::RawNewline,
        Severity::Warning,
        "the client skips the record, and sends nothing of what stands before it",
    ),
    qwen(
        Damage::RepeatedRecord,
        Severity::Note,
        "the client sends its calls and results once",
    ),
    qwen(
        Damage::EmptyFile,
        Severity::Error,
        "the client does not find the session",
    ),
    qwen(
        Damage::LostParent,
        Severity::Warning,
        "the client sends nothing of what stands before it",
    ),
    qwen(
        Damage::UuidTwice,
        Severity::Warning,
        "the client takes both for one message, and leaves out what stands between them",
    ),
    qwen(
        Damage::ParentCircle,
        Severity::Note,
        "the client ends its way back there, and sends nothing of what stands before it",
    ),
    qwen(
        Damage::Fork,
        Severity::Warning,
        "the client sends the branch of the last record, and leaves the other out",
    ),
    qwen(
        Damage::Rewound,
        Severity::Note,
        "the client sends the branch of the last record",
    ),
    qwen(
        Damage::OpenCall,
        Severity::Note,
        "the client answers the call itself, with the words that no result was recorded",
    ),
    qwen_pair(
        FindingKind::Unanswered,
        Severity::Note,
        "the client answers the call itself, with the words that no result was recorded",
    ),
    qwen_pair(
        FindingKind::Orphan,
        Severity::Warning,
        "the client leaves the result out",
    ),
    qwen_pair(
        FindingKind::Duplicate,
        Severity::Note,
        "the client sends the first of the results",
    ),
    qwen_pair(
        FindingKind::DuplicateCall,
        Severity::Error,
        "the client sends both, and the provider refuses every request",
    ),
    qwen_pair(
        FindingKind::MalformedCall,
        Severity::Note,
        "the client sends another input in its place",
    ),
    // opencode, which keeps its sessions in a database.
    opencode(
        SessionCode::Damage(Damage::TornRecord),
        Severity::Error,
        "the client does not load the session",
    ),
    opencode(
        SessionCode::Damage(Damage::LostParent),
        Severity::Warning,
        "the client leaves it out",
    ),
    opencode(
        SessionCode::Damage(Damage::OpenCall),
        Severity::Note,
        "the client answers it in each request, with the words that it was interrupted",
    ),
    opencode(
        SessionCode::Pairing(FindingKind::Unanswered),
        Severity::Note,
        "the client answers it in each request, with the words that it was interrupted",
    ),
    opencode(
        SessionCode::Pairing(FindingKind::DuplicateCall),
        Severity::Error,
        "the client sends both, and the provider refuses every request",
    ),
    opencode(
        SessionCode::Pairing(FindingKind::MalformedCall),
        Severity::Error,
        "the client does not load a session with a call that has no state",
    ),
];

/// The versions of Claude Code that a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// All that were tried.
    All,
    /// Those from 2.1.332 on.
    New,
    /// Those before it.
    Old,
    /// Those before 2.1.42. Their rows stand before those of [`Since::Old`].
    First,
    /// Those from 2.1.42 on.
    Later,
}

/// The first version of Claude Code that copes with most damage. Those between 2.1.42 and it were not tried.
const CLAUDE_COPES: ClientVersion = ClientVersion([2, 1, 332]);

/// The version of Claude Code that was tried before it.
const CLAUDE_LATER: ClientVersion = ClientVersion([2, 1, 42]);

const fn claude(damage: Damage, since: Since, severity: Severity, effect: &'static str) -> Measured {
    claude_row(SessionCode::Damage(damage), since, severity, effect)
}

const fn claude_pair(kind: FindingKind, since: Since, severity: Severity, effect: &'static str) -> Measured {
    claude_row(SessionCode::Pairing(kind), since, severity, effect)
}

const fn claude_row(code: SessionCode, since: Since, severity: Severity, effect: &'static str) -> Measured {
    let (from, until, measured) = match since {
        Since::All => (None, None, "2.0.32, 2.1.42 and 2.1.332, 2026-11"),
        Since::New => (Some(CLAUDE_COPES), None, "2.1.332, 2026-11"),
        Since::Old => (None, Some(CLAUDE_COPES), "2.0.32 and 2.1.42, 2026-11"),
        Since::First => (None, Some(CLAUDE_LATER), "2.0.32, 2026-11"),
        Since::Later => (Some(CLAUDE_LATER), None, "2.1.42 and 2.1.332, 2026-11"),
    };
    Measured {
        code,
        client: SessionClient::ClaudeCode,
        from,
        until,
        severity,
        effect,
        measured,
    }
}

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

const fn copilot(damage: Damage, severity: Severity, effect: &'static str) -> Measured {
    read_only_row(SessionClient::Copilot, SessionCode::Damage(damage), severity, effect)
}

const fn copilot_pair(kind: FindingKind, severity: Severity, effect: &'static str) -> Measured {
    read_only_row(SessionClient::Copilot, SessionCode::Pairing(kind), severity, effect)
}

const fn qwen(damage: Damage, severity: Severity, effect: &'static str) -> Measured {
    read_only_row(SessionClient::QwenCode, SessionCode::Damage(damage), severity, effect)
}

const fn qwen_pair(kind: FindingKind, severity: Severity, effect: &'static str) -> Measured {
    read_only_row(SessionClient::QwenCode, SessionCode::Pairing(kind), severity, effect)
}

const fn opencode(code: SessionCode, severity: Severity, effect: &'static str) -> Measured {
    read_only_row(SessionClient::OpenCode, code, severity, effect)
}

const fn read_only_row(client: SessionClient, code: SessionCode, severity: Severity, effect: &'static str) -> Measured {
    let measured = match client {
        SessionClient::Copilot => "1.0.102, 2026-11",
        SessionClient::QwenCode => "0.24.4, 2026-11",
        _ => "1.18.33, 2026-11",
    };
    Measured {
        code,
        client,
        from: None,
        until: None,
        severity,
        effect,
        measured,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effect_depends_on_the_version() {
        let severity = |code, version| {
            let version = ClientVersion::parse(version);
            severity_of(code, SessionClient::ClaudeCode, version).map(|row| row.severity)
        };
        let circle = SessionCode::Damage(Damage::ParentCircle);
        for (version, wanted) in [
            ("2.0.32", Severity::Error),
            ("2.1.42", Severity::Warning),
            ("2.1.331", Severity::Warning),
            ("2.1.332", Severity::Note),
            ("3.0.0", Severity::Note),
            // Without a version the newest one is meant.
            ("", Severity::Note),
        ] {
            assert_eq!(severity(circle, version), Some(wanted), "{version}");
        }
        assert_eq!(
            severity(SessionCode::Pairing(FindingKind::Orphan), "2.0.32"),
            Some(Severity::Error)
        );
    }

    /// A version between those that were tried has an effect too.
    #[test]
    fn each_damage_of_claude_code_has_an_effect_in_every_version() {
        for row in MEASURED.iter().filter(|row| row.client == SessionClient::ClaudeCode) {
            for version in ["0.0.1", "2.0.32", "2.1.42", "2.1.200", "2.1.332", "9.9.9", ""] {
                let found = severity_of(row.code, row.client, ClientVersion::parse(version));
                assert!(found.is_some(), "{} in {version}", row.code.label());
            }
        }
    }
}
