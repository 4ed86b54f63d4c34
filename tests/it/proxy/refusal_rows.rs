//! Rows of refusals through the proxy: a server that refuses in their words gets what the row says, by bytes.

use antiphon::{
    provider::ProviderKind,
    wire::{Format, Wire},
};
use strict_provider::refusal_rule::{RefusalCondition, RefusalRule};

use crate::{
    proxy::{learned_rules::path, refused_ids::app_as},
    support::{
        app::post_with,
        judge,
        provider::{Provider, Settings},
        refusals::{DocumentedRow, REFUSALS, ROWS, RowRepair},
    },
};

/// Starts a server that refuses in the words of the row.
async fn server(row: &DocumentedRow, repair: &RowRepair, wire: Wire) -> Provider {
    let text = REFUSALS.iter().find(|known| known.row == row.name);
    Provider::with_settings(Settings {
        dialects: vec![judge::reading(wire)],
        refusal_rules: vec![RefusalRule {
            status: row.status[0],
            text: text.unwrap().text.clone(),
            refused_if: RefusalCondition::parse(&repair.refused_if).unwrap(),
        }],
        ..Settings::default()
    })
    .await
}

/// Each request of another caller is refused once more, and what the server has accepted is sent unchanged.
#[tokio::test]
async fn a_row_repairs_what_its_server_refuses() {
    let (mut tried, mut faults) = (0, Vec::new());
    for row in &*ROWS {
        let Some(repair) = &row.repair else { continue };
        let wire: Wire = repair.wire.parse().unwrap();
        let (name, path) = (&row.name, path(wire.format));
        let provider = server(row, repair, wire).await;
        let app = app_as(provider.address(), ProviderKind::Compatible).await;
        let ask = async |key: &str, body: &str| {
            let before = provider.seen().len();
            let key = format!("Bearer {key}");
            let fields = [("authorization", key.as_str()), ("content-type", "application/json")];
            let got = app.ask(post_with(path, &fields, body.as_bytes())).await;
            let seen = provider.seen();
            let statuses: Vec<u16> = seen[before..].iter().map(|seen| seen.status.as_u16()).collect();
            let last = String::from_utf8_lossy(&seen.last().unwrap().body).into_owned();
            (got.status(), statuses, last)
        };
        let refused = vec![row.status[0], 200];
        let first = ask("one", &repair.before).await;
        if first != (200, refused.clone(), repair.after.clone()) {
            faults.push(format!("{name}: {:?}\n{}", (first.0, first.1), first.2));
            continue;
        }
        let (status, statuses, last) = ask("one", &repair.before).await;
        assert!(status == 200 && statuses.len() <= 2, "{name}: {statuses:?}\n{last}");
        assert_eq!(last, repair.after, "{name}, again");
        assert_eq!(
            ask("two", &repair.before).await,
            (200, refused, repair.after.clone()),
            "{name}, another caller"
        );
        assert_eq!(
            ask("three", &repair.after).await,
            (200, vec![200], repair.after.clone()),
            "{name}, as accepted"
        );
        tried += 1;
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(tried >= 8, "{tried}");
    assert!(ROWS.iter().filter_map(|row| row.repair.as_ref()).any(|repair| {
        repair
            .wire
            .parse::<Wire>()
            .is_ok_and(|wire| wire.format == Format::OpenAiResponses)
    }));
}

/// A condition, a body for which it holds, and one for which it does not.
const CONDITIONS: &[(&str, &str, &str)] = &[
    (
        "present m[r=a].x",
        r#"{"m":[{"r":"a","x":1}]}"#,
        r#"{"m":[{"r":"b","x":1}]}"#,
    ),
    ("present m[!x].y", r#"{"m":[{"y":1}]}"#, r#"{"m":[{"x":1,"y":1}]}"#),
    ("none m[r=a]", r#"{"m":[{"r":"b"}]}"#, r#"{"m":[{"r":"a"}]}"#),
    ("missing m[*].x", r#"{"m":[{"x":1},{}]}"#, r#"{"m":[{"x":1}]}"#),
    ("unparsed m[*].x", r#"{"m":[{"x":"{"}]}"#, r#"{"m":[{"x":"{}"}]}"#),
    (
        "repeated m[x].x",
        r#"{"m":[{"x":1},{},{"x":1}]}"#,
        r#"{"m":[{"x":1},{"x":2}]}"#,
    ),
    (
        "neighbours m[*] a b",
        r#"{"m":[{"role":"a"},{"role":"b"}]}"#,
        r#"{"m":[{"role":"b"},{"role":"a"}]}"#,
    ),
    (
        "equals m[*].x a b",
        r#"{"m":[{"x":"c"},{"x":"a b"}]}"#,
        r#"{"m":[{"x":"a"}]}"#,
    ),
    (
        "equals m[-1].x a",
        r#"{"m":[{"x":"b"},{"x":"a"}]}"#,
        r#"{"m":[{"x":"a"},{"x":"b"}]}"#,
    ),
    (
        "equals m[1-].x a",
        r#"{"m":[{"x":"b"},{"x":"a"}]}"#,
        r#"{"m":[{"x":"a"},{"x":"b"}]}"#,
    ),
    (
        "empty m[*].x",
        r#"{"m":[{"x":""}]}"#,
        r#"{"m":[{"x":null},{"x":"a"},{"x":0}]}"#,
    ),
    ("empty m", r#"{"m":[]}"#, r#"{"m":[1]}"#),
    ("empty m", r#"{"m":{}}"#, "{}"),
    ("type m null", r#"{"m":null}"#, "{}"),
    ("type m list", r#"{"m":[]}"#, r#"{"m":{}}"#),
    ("type m text", r#"{"m":""}"#, r#"{"m":[]}"#),
    ("type m object", r#"{"m":{}}"#, r#"{"m":""}"#),
    ("untrimmed m", r#"{"m":"a\n"}"#, r#"{"m":" a"}"#),
    ("blank m", r#"{"m":"\n"}"#, r#"{"m":"a "}"#),
    ("blank m", r#"{"m":""}"#, r#"{"m":[]}"#),
    (
        "lacks m t",
        r#"{"m":[{"type":"u"}]}"#,
        r#"{"m":[{"type":"u"},{"type":"t"}]}"#,
    ),
    ("lacks m t", r#"{"m":[]}"#, r#"{"m":"t"}"#),
    (
        "more_than m[x].x 1",
        r#"{"m":[{"x":1},{"x":2}]}"#,
        r#"{"m":[{"x":1},{}]}"#,
    ),
    (
        "lone_surrogate",
        r#"{"m":"\\n\ud83d"}"#,
        r#"{"m":"\ud83d\ude00\\ud83d\u00e4"}"#,
    ),
    ("lone_surrogate", r#"{"m":"\ude00"}"#, "{}"),
    ("lone_surrogate", r#"{"m":"\ud83d\ud83d\ude00"}"#, "{"),
];

/// A condition means what its text says: judged by bodies that hold and break it.
#[test]
fn conditions_are_read() {
    let holds = |condition: &str, body: &str| {
        let condition = RefusalCondition::parse(condition).unwrap();
        condition.holds(body.as_bytes())
    };
    for (condition, holding, breaking) in CONDITIONS {
        assert!(holds(condition, holding), "{condition}");
        assert!(!holds(condition, breaking), "{condition}");
    }
    for faulty in [
        "",
        "present",
        "sometimes m",
        "present m[x",
        "present m n",
        "neighbours m a",
        "type m",
        "type m number",
        "more_than m",
        "more_than m x",
        "empty m a",
        "lone_surrogate m",
        "lacks m",
    ] {
        assert!(RefusalCondition::parse(faulty).is_err(), "{faulty}");
    }
}
