//! Compares the tables of `docs/keys.md` with the code.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use antiphon::{
    keys::rotation::{AttemptReport, PoolMember, Rotation},
    policy::{
        Class, CooldownReason, KEY_STATEMENTS, KeyStatement, LimitHints, Observation, ProviderErrorInfo, Verdict,
        VerdictScope, classify, status_of_error,
    },
    provider::ProviderKind,
    refusals::RefusalReader,
};

use crate::frozen::words::cooldown_classes;

const DOCUMENT: &str = include_str!("../../../docs/keys.md");

/// Returns the rows of the first table below a heading, without its head. Backticks are removed.
fn table(heading: &str) -> Vec<Vec<String>> {
    let (_, section) = DOCUMENT.split_once(heading).unwrap();
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    };
    rows.map(cells).collect()
}

/// Returns the document's word for the consequence of a class.
fn word(class: Class) -> String {
    let reason = class.cooldown_reason().map(|reason| reason.label().to_owned());
    reason.unwrap_or_else(|| format!("none: {}", class.label()))
}

#[test]
fn every_statement_is_documented_and_counts() {
    let documented: BTreeSet<Vec<String>> = table("## Statements").into_iter().collect();
    let coded: BTreeSet<Vec<String>> = KEY_STATEMENTS
        .iter()
        .map(|row| vec![row.status.to_string(), row.name.to_owned(), word(row.class)])
        .collect();
    assert_eq!(documented, coded);
    for row in KEY_STATEMENTS {
        let body = format!(r#"{{"error":{{"type":"{}","message":"words"}}}}"#, row.name);
        let error = ProviderErrorInfo::parse_body(None, body.as_bytes(), &RefusalReader::default());
        let judge = |status| {
            classify(Observation::Response {
                kind: ProviderKind::Compatible,
                status,
                error: &error,
            })
        };
        let verdict = judge(row.status);
        assert_eq!(
            (verdict.class, verdict.scope),
            (row.class, VerdictScope::Class),
            "{row:?}"
        );
        let evidence = verdict.evidence.unwrap();
        assert_eq!((evidence.status, evidence.statement), (row.status, row.name));
        // Under another status it does not count, unless it counts there too.
        for status in [400, 401, 403, 404, 422, 429, 500] {
            let also = KEY_STATEMENTS
                .iter()
                .any(|other| other.name == row.name && other.status == status);
            let counts = judge(status).cooldown_reason().is_some() && judge(status).scope == VerdictScope::Class;
            assert_eq!(
                counts,
                also && row.class.cooldown_reason().is_some(),
                "{row:?} {status}"
            );
        }
    }
}

#[test]
fn a_name_in_a_stream_counts_as_under_its_status() {
    for row in KEY_STATEMENTS {
        let body = format!(r#"{{"error":{{"type":"{}","message":"words"}}}}"#, row.name);
        let status = status_of_error(&ProviderErrorInfo::parse_body(
            None,
            body.as_bytes(),
            &RefusalReader::default(),
        ));
        // A name that is not known there counts as the provider's own failure, and costs no key anything.
        // Bedrock gives one name two statuses.
        let also = |other: &KeyStatement| other.name == row.name && other.status == status;
        assert!(status == 500 || KEY_STATEMENTS.iter().any(also), "{row:?} {status}");
    }
}

#[test]
fn every_cooldown_has_its_documented_length_and_extent() {
    let rows = table("## Cooldowns");
    assert_eq!(rows.len(), CooldownReason::ALL.len());
    for (row, class) in rows.iter().zip(cooldown_classes()) {
        assert_eq!(row[0], word(class));
        let lengths = lengths(class, 8);
        let seconds = |cell: &str| cell.trim_end_matches(" s").parse::<u64>().unwrap();
        assert_eq!(
            row[1..4].iter().map(|cell| seconds(cell)).collect::<Vec<_>>(),
            lengths[..3],
            "{row:?}"
        );
        assert_eq!(Some(&seconds(&row[4])), lengths.iter().max(), "{row:?}");
        let (of_model, of_organisation, disables) = extent(class);
        let whom = if of_organisation {
            "the organisation"
        } else {
            "the profile"
        };
        let whom = if of_model {
            format!("{whom} and model")
        } else {
            whom.to_owned()
        };
        assert_eq!(row[5], whom);
        let word = match disables[..] {
            [true, true, true] => "yes",
            [false, false, true] => "from the third on",
            _ => "no",
        };
        assert_eq!(row[6], word, "{row:?}");
    }
}

#[test]
fn every_reason_has_advice() {
    let documented: Vec<String> = table("## Why is this key in cooldown?")
        .into_iter()
        .map(|row| row[0].clone())
        .collect();
    let coded: Vec<&str> = CooldownReason::ALL.iter().map(|reason| reason.label()).collect();
    assert_eq!(documented, coded);
}

fn start() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    Instant::now()
}

/// Two profiles of one organisation.
fn pool() -> Rotation {
    let member = |label: &str| PoolMember {
        label: label.into(),
        weight: 1,
        organisation: Some("org".into()),
        ..PoolMember::default()
    };
    Rotation::new(vec![member("a"), member("b")], Duration::from_secs(10), false)
}

fn report(class: Class, now: Instant) -> AttemptReport<'static> {
    AttemptReport {
        verdict: Verdict::from_class(class),
        model: Some("m"),
        path: None,
        hints: LimitHints::default(),
        began: now,
        jitter: 0.0,
    }
}

/// Returns the seconds of consecutive cooldowns of a class.
fn lengths(class: Class, count: usize) -> Vec<u64> {
    let (mut pool, mut now) = (pool(), start());
    let mut next = || {
        pool.record_attempt(0, &report(class, now), now);
        let until = pool.profile_statuses(now)[0].cooldowns[0].until;
        let length = until.duration_since(now);
        now = until;
        length.as_secs()
    };
    (0..count).map(|_| next()).collect()
}

/// Returns whether cooldowns of a class are of one model, of the whole organisation, and whether the first three
/// disable.
fn extent(class: Class) -> (bool, bool, Vec<bool>) {
    let (mut pool, mut now) = (pool(), start());
    let (mut disables, mut of_model, mut shared) = (Vec::new(), false, false);
    for _ in 0..3 {
        pool.record_attempt(0, &report(class, now), now);
        let statuses = pool.profile_statuses(now);
        let rest = &statuses[0].cooldowns[0];
        disables.push(rest.disables);
        of_model = rest.model.is_some();
        shared = !statuses[1].cooldowns.is_empty();
        now = rest.until;
    }
    (of_model, shared, disables)
}
