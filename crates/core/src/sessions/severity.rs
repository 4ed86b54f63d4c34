//! The effect of a finding on a version of a client, by the table of what was measured.

use super::{
    client::{ClientVersion, SessionClient},
    damage::SessionCode,
    finding::RecordLoss,
    measured::{MEASURED, Measured, Severity},
};

/// Returns the effect of a finding on a version of a client: without a version the gravest one of all. `None` if nothing was
/// measured.
pub fn find_effect(
    code: SessionCode,
    loss: RecordLoss,
    client: SessionClient,
    version: Option<ClientVersion>,
) -> Option<&'static Measured> {
    let has_case = |row: &&Measured| row.loss.is_none_or(|case| case == loss);
    let first = |version: ClientVersion| {
        let mut rows = rows_of(code, client).filter(has_case);
        rows.find(|row| row.has_version(version))
    };
    if let Some(version) = version {
        return first(version);
    }
    // Each row begins or ends the effect of another one.
    let begins = rows_of(code, client).filter_map(|row| row.from);
    let effects = begins.chain([ClientVersion([0, 0, 0])]).filter_map(first);
    effects.max_by_key(|row| row.severity)
}

/// Returns the weight of a finding for a version of a client. What was not measured is at least a warning, and as grave as
/// the gravest that was measured of its code.
pub fn severity_of(
    code: SessionCode,
    loss: RecordLoss,
    client: SessionClient,
    version: Option<ClientVersion>,
) -> Severity {
    let known = find_effect(code, loss, client, version).map(|row| row.severity);
    let gravest = || {
        let own = rows_of(code, client).map(|row| row.severity).max();
        let any = MEASURED.iter().filter(|row| row.code == code);
        let any = own.or_else(|| any.map(|row| row.severity).max());
        any.map_or(Severity::Warning, |severity| severity.max(Severity::Warning))
    };
    known.unwrap_or_else(gravest)
}

fn rows_of(code: SessionCode, client: SessionClient) -> impl Iterator<Item = &'static Measured> {
    MEASURED
        .iter()
        .filter(move |row| row.code == code && row.client == client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{conversation::FindingKind, sessions::damage::Damage};

    const CASES: [RecordLoss; 5] = RecordLoss::ALL;

    #[test]
    fn the_effect_depends_on_the_version() {
        let circle = SessionCode::Damage(Damage::ParentCircle);
        let orphan = SessionCode::Pairing(FindingKind::Orphan);
        let misplaced = SessionCode::Pairing(FindingKind::Misplaced);
        for (code, version, wanted) in [
            (misplaced, "2.0.32", Severity::Error),
            (misplaced, "2.1.42", Severity::Warning),
            (misplaced, "2.1.332", Severity::Warning),
            (circle, "2.0.32", Severity::Error),
            (circle, "2.1.42", Severity::Warning),
            (circle, "2.1.331", Severity::Warning),
            (circle, "2.1.332", Severity::Note),
            (circle, "3.0.0", Severity::Note),
            // Without a version the gravest one is meant.
            (circle, "", Severity::Error),
            (orphan, "2.0.32", Severity::Error),
            (orphan, "", Severity::Error),
        ] {
            let (client, parsed) = (SessionClient::ClaudeCode, ClientVersion::parse(version));
            assert_eq!(severity_of(code, RecordLoss::Any, client, parsed), wanted, "{version}");
        }
    }

    #[test]
    fn the_effect_depends_on_the_record_that_is_lost() {
        use RecordLoss::{Any, First, Last, Nothing};
        use SessionClient::{ClaudeCode, Codex};
        use Severity::{Error, Note, Warning};

        for (damage, client, losses, wanted) in [
            (Damage::NulBytes, ClaudeCode, &[Nothing][..], Note),
            (Damage::NulBytes, ClaudeCode, &[Any, First, Last], Warning),
            (Damage::TornRecord, ClaudeCode, &[Nothing], Note),
            (Damage::TornRecord, ClaudeCode, &[Any, First, Last], Warning),
            (Damage::InvalidUtf8, ClaudeCode, &CASES, Note),
            (Damage::NulBytes, Codex, &[Nothing], Note),
            (Damage::NulBytes, Codex, &[Any, Last], Warning),
            (Damage::NulBytes, Codex, &[First], Error),
            (Damage::TornRecord, Codex, &[Nothing], Note),
            (Damage::TornRecord, Codex, &[Any, Last], Warning),
            (Damage::TornRecord, Codex, &[First], Error),
            (Damage::InvalidUtf8, Codex, &[Nothing], Note),
            (Damage::InvalidUtf8, Codex, &[Any, Last], Warning),
            (Damage::InvalidUtf8, Codex, &[First], Error),
            (Damage::JoinedRecords, Codex, &[First], Error),
            (Damage::OrdinalMissing, Codex, &[Nothing], Note),
            (Damage::OrdinalMissing, Codex, &[Any, First, Last], Error),
        ] {
            for loss in losses {
                let code = SessionCode::Damage(damage);
                let found = severity_of(code, *loss, client, ClientVersion::parse("2.1.332"));
                assert_eq!(found, wanted, "{damage:?} {client:?} {loss:?}");
            }
        }
    }

    /// A version between those that were tried has an effect too.
    #[test]
    fn what_was_measured_covers_every_version_and_case() {
        for row in MEASURED {
            for version in ["0.0.1", "2.0.32", "2.1.42", "2.1.200", "2.1.332", "9.9.9", ""] {
                let version = ClientVersion::parse(version);
                for loss in CASES {
                    let found = find_effect(row.code, loss, row.client, version);
                    assert!(found.is_some(), "{} in {version:?}, {loss:?}", row.code.label());
                }
            }
        }
    }

    #[test]
    fn what_was_not_measured_is_at_least_a_warning() {
        let client = SessionClient::ClaudeCode;
        for (code, wanted) in [
            (SessionCode::Damage(Damage::LongRecord), Severity::Warning),
            // Errors for other clients.
            (SessionCode::Pairing(FindingKind::DuplicateCall), Severity::Error),
            (SessionCode::Damage(Damage::EmptyFile), Severity::Error),
        ] {
            assert_eq!(find_effect(code, RecordLoss::Any, client, None), None);
            assert_eq!(severity_of(code, RecordLoss::Nothing, client, None), wanted, "{code:?}");
        }
    }
}
