//! An operator's own rows through the proxy: they come before the built-in ones, under the same limits.

use antiphon::{
    config::{Flags, build_config},
    provider::ProviderKind,
    refusals::RefusalReader,
};
use strict_provider::refusal_rule::{RefusalCondition, RefusalRule};

use crate::support::{
    app::{App, Builder, before, post_with},
    provider::{Provider, Settings},
};

const CHAT: &str = "/x/v1/chat/completions";
const HI: &str = r#"{"role":"user","content":"Hi"}"#;
/// A body with a role that only some servers know.
const DEVELOPER: &str =
    r#"{"model":"m","messages":[{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi"}]}"#;
const SYSTEM: &str =
    r#"{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]}"#;
const RENAME: &str = r#"
    [[repair.rules]]
    name = "house_roles"
    text = ["House rule 7: the role <name> is not spoken here"]
    mend = "rename_role <name>"
"#;

const DROP_ODD: &str = r#"[[repair.rules]]
        name = "house-members"
        status = [409, 422]
        text = ["House rule 8: no <member> in a message"]
        then = ["Ask <word> why"]
        mend = "drop_member <member>"
    "#;
const OPENING: &str = r#"[[repair.rules]]
        name = "house_opening"
        fault = "no_user_turn"
        status = [500]
        text = ["House rule 9: somebody has to ask first"]
    "#;

/// Returns the reader of a configuration with these rows.
pub(crate) fn reader(rows: &str) -> RefusalReader {
    let none = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
    let loaded = build_config(Some(("antiphon.toml", rows)), &Flags::default(), &|_| None, &none);
    loaded.unwrap_or_else(|error| panic!("{error}")).config.proxy.refusals
}

/// A server that refuses bodies, and what becomes of one of them.
struct Story {
    rows: &'static str,
    status: u16,
    text: &'static str,
    refused_if: &'static str,
    before: String,
    /// The statuses of the sends.
    sends: &'static [u16],
    /// The body of the last send.
    after: String,
}

fn chat(messages: &str) -> String {
    format!(r#"{{"model":"m","messages":[{messages}]}}"#)
}

/// A row in another's words gets the recovery that it names; a lossy one must be the whole message.
fn stories() -> Vec<Story> {
    let story = |rows, status, text, refused_if, before: &str, sends, after: &str| Story {
        rows,
        status,
        text,
        refused_if,
        before: before.to_owned(),
        sends,
        after: after.to_owned(),
    };
    let developer = "present messages[role=developer]";
    let house = "House rule 7: the role 'developer' is not spoken here, sorry";
    let odd = r#"{"role":"assistant","content":"a","odd":1}"#;
    let odd = chat(&[HI, odd, HI].join(","));
    let even = odd.replace(r#","odd":1"#, "");
    let has_odd = "present messages[*].odd";
    let answer = r#"{"role":"assistant","content":"Hi."}"#;
    let opened = r#"{"role":"user","content":"[antiphon: the beginning of this conversation is missing.]"}"#;
    let known = "developer is not one of ['system', 'assistant', 'user', 'tool', 'function']";
    let taken_over = r#"[[repair.rules]]
        name = "house_trim"
        text = ["developer is not one of ["]
        mend = "trim_end"
    "#;
    vec![
        story(RENAME, 400, house, developer, DEVELOPER, &[400, 200], SYSTEM),
        story("", 400, house, developer, DEVELOPER, &[400], DEVELOPER),
        story(RENAME, 422, house, developer, DEVELOPER, &[422], DEVELOPER),
        story(
            DROP_ODD,
            409,
            "House rule 8: no 'odd' in a message. Ask ann why.",
            has_odd,
            &odd,
            &[409, 200],
            &even,
        ),
        story(
            DROP_ODD,
            409,
            "House rule 8: no 'odd' in a message. So Ann said.",
            has_odd,
            &odd,
            &[409],
            &odd,
        ),
        story(
            OPENING,
            500,
            "House rule 9: somebody has to ask first",
            "none messages[role=user]",
            &chat(answer),
            &[500, 200],
            &chat(&[opened, answer].join(",")),
        ),
        story("", 400, known, developer, DEVELOPER, &[400, 200], SYSTEM),
        story(taken_over, 400, known, developer, DEVELOPER, &[400], DEVELOPER),
    ]
}

async fn server(story: &Story) -> Provider {
    Provider::with_settings(Settings {
        refusal_rules: vec![RefusalRule {
            status: story.status,
            text: story.text.to_owned(),
            refused_if: RefusalCondition::parse(story.refused_if).unwrap(),
        }],
        ..Settings::default()
    })
    .await
}

async fn start(provider: &Provider, refusals: RefusalReader) -> App {
    let one = |builder: &mut Builder| {
        builder.upstreams.truncate(1);
        builder.upstreams[0].name.replace_range(.., "x");
        builder.upstreams[0].kind = ProviderKind::Compatible;
        builder.proxy.refusals = refusals;
    };
    before(provider.address()).with(one).start().await
}

#[tokio::test]
async fn an_own_row_repairs_what_its_server_refuses() {
    for story in stories() {
        let provider = server(&story).await;
        let app = start(&provider, reader(story.rows)).await;
        let fields = [("authorization", "Bearer one"), ("content-type", "application/json")];
        let label = format!("{}\n{}", story.text, story.rows);
        for sends in [story.sends, story.sends.last().map(std::slice::from_ref).unwrap()] {
            let sent = provider.seen().len();
            let got = app.ask(post_with(CHAT, &fields, story.before.as_bytes())).await;
            let seen = provider.seen();
            let statuses: Vec<u16> = seen[sent..].iter().map(|seen| seen.status.as_u16()).collect();
            assert_eq!(
                (got.status(), &statuses[..]),
                (*sends.last().unwrap(), sends),
                "{label}"
            );
            assert_eq!(
                String::from_utf8_lossy(&seen.last().unwrap().body),
                story.after,
                "{label}"
            );
        }
    }
}

#[test]
fn what_an_own_row_reads_is_a_known_refusal() {
    let text = r#"{"error":{"message":"House rule 9: somebody has to ask first"}}"#.as_bytes();
    let rows = r#"[[repair.rules]]
        name = "house_opening"
        fault = "no_user_turn"
        status = [500]
        text = ["House rule 9: somebody has to ask first"]
    "#;
    let own = reader(rows);
    let found = own.read_with_status(500, text).unwrap();
    assert!(found.row.is_own && found.row.name == "house_opening");
    assert!(own.has_status(500) && own.read_with_status(400, text).is_none());
    assert!(RefusalReader::default().read(None, text).is_none());
}

/// An own row may also say that a text means a prompt that is too long: then clients can act on the error.
#[tokio::test]
async fn an_own_row_explains_an_error() {
    let rows = r#"[[repair.rules]]
        name = "house_length"
        fault = "overflow"
        text = ["House rule 10: <prompt> words are too many, the house has <limit>"]
    "#;
    let story = Story {
        rows: "",
        status: 400,
        text: "House rule 10: 5000 words are too many, the house has 4096",
        refused_if: "present messages[*]",
        before: chat(HI),
        sends: &[400],
        after: chat(HI),
    };
    let provider = server(&story).await;
    let app = start(&provider, reader(rows)).await;
    let fields = [("authorization", "Bearer one"), ("content-type", "application/json")];
    let got = app.ask(post_with(CHAT, &fields, story.before.as_bytes())).await;
    assert_eq!(
        (got.status(), got.header("x-antiphon-explained")),
        (400, Some("house_length"))
    );
    let error = got.json();
    assert_eq!(error["error"]["code"], "context_length_exceeded");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with(story.text) && message.contains("4096 tokens"),
        "{message}"
    );
    let page = app.telemetry.encode_metrics();
    assert!(
        page.contains(r#"antiphon_refusal_rows_total{row="own",outcome="explained"} 1"#),
        "{page}"
    );
}
