//! Pins the errors that the proxy itself returns: status, headers, and the body in each provider's shape. The message
//! is for people and is not pinned.

use std::{io, time::Duration};

use antiphon::{
    conversation::{Finding, FindingKind},
    keys::profiles::LackingProfile,
    keys::{credential_source::SourceFailure, rotation::NoneAvailable},
    policy::{Class, CooldownReason, Verdict},
    proxy::{ClientFault, ExhaustedPool, ProxyError, Rejection, RequestRefusal, credential::ApplyError},
    server::budget::Overloaded,
    upstream::{Phase, SendError, SendErrorKind},
    wire::ErrorShape,
    wire::Format,
};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    admin::api,
    frozen::golden::{same, same_lines},
    support::app::admin,
};

const SHAPES: [(&str, ErrorShape); 5] = [
    ("anthropic", ErrorShape::Anthropic),
    ("openai", ErrorShape::OpenAi),
    ("responses", ErrorShape::Responses),
    ("gemini", ErrorShape::Gemini),
    ("bedrock", ErrorShape::Bedrock),
];

pub(crate) const PHASES: [(&str, Phase); 6] = [
    ("name", Phase::Resolve),
    ("connection", Phase::Connect),
    ("handshake", Phase::Tls),
    ("request", Phase::Send),
    ("head", Phase::Headers),
    ("body", Phase::Body),
];

pub(crate) const KINDS: [(&str, SendErrorKind); 5] = [
    ("broken", SendErrorKind::Io),
    ("late", SendErrorKind::TimedOut),
    ("malformed", SendErrorKind::Protocol),
    ("own body", SendErrorKind::Request),
    ("without descriptors", SendErrorKind::NoDescriptors),
];

/// Returns every error, under a name that only this file uses.
pub(crate) fn errors() -> Vec<(String, ProxyError)> {
    let mut errors: Vec<(String, ProxyError)> = Vec::new();
    for refusal in RequestRefusal::ALL {
        errors.push((format!("refused {}", refusal.label()), ProxyError::Refused(refusal)));
    }
    let mut add = |name: &str, error| errors.push((name.to_owned(), error));
    let (upstream, token) = ("u".to_owned(), "ci".to_owned());
    add("token as key", ProxyError::TokenAsKey { upstream });
    let upstream = "u".to_owned();
    add(
        "upstream not allowed",
        ProxyError::UpstreamNotAllowed { upstream, token },
    );
    let token = "ci".to_owned();
    add("too many exchanges", ProxyError::TooManyExchanges { token, max: 1 });
    add(
        "no route",
        ProxyError::NoRoute {
            api: None,
            bases: Vec::new(),
        },
    );
    add("body broken", ProxyError::Body(ClientFault::Broken));
    add("body stalled", ProxyError::Body(ClientFault::Stalled));
    add("body too large", ProxyError::TooLarge { limit: 9 });
    add("rejected", ProxyError::Rejected(rejection()));
    for (name, error) in [
        ("streamed", ApplyError::Streamed),
        ("elsewhere", ApplyError::WrongHost),
        ("unsignable", ApplyError::Unsignable),
        ("awaited", ApplyError::Awaited),
    ] {
        add(&format!("unsigned {name}"), ProxyError::Unsigned { error, limit: 9 });
    }
    add("deadline", ProxyError::Deadline);
    add("drained", ProxyError::Drained { phase: "headers" });
    add("ledger away", ProxyError::LedgerAway);
    add("work full", ProxyError::Overloaded(Overloaded::Work));
    add("memory full", ProxyError::Overloaded(Overloaded::Memory));
    for class in [Class::Broken, Class::Stalled, Class::Parked { queued: true }] {
        let verdict = Verdict::from_class(class);
        add(&format!("unbegun {}", class.label()), ProxyError::NotBegun(verdict));
    }
    exhausted(&mut add);
    lacking(&mut add);
    unanswered(&mut add);
    errors
}

fn rejection() -> Rejection {
    let finding = Finding {
        kind: FindingKind::Field,
        message: 3,
        part: Some(1),
        id: "toolu_1".to_owned(),
        within: "requests[2].params.".to_owned(),
        detail: Some("blank_text"),
    };
    Rejection {
        findings: vec![finding],
        format: Format::Anthropic,
    }
}

fn exhausted(add: &mut impl FnMut(&str, ProxyError)) {
    for (name, reasons, wait, is_bound, is_busy) in [
        (
            "by limits",
            vec![CooldownReason::RateLimit, CooldownReason::Quota],
            Some(1),
            false,
            false,
        ),
        (
            "for more than a minute",
            vec![CooldownReason::RateLimit],
            Some(61),
            true,
            false,
        ),
        (
            "by a key",
            vec![CooldownReason::RateLimit, CooldownReason::Auth],
            Some(30),
            false,
            false,
        ),
        ("by rejected keys", vec![CooldownReason::Auth], Some(30), false, false),
        (
            "by unpaid keys",
            vec![CooldownReason::Auth, CooldownReason::Billing],
            Some(30),
            false,
            false,
        ),
        ("by requests at once", vec![], Some(1), false, true),
        ("without a reason", vec![], None, false, false),
    ] {
        let error = ProxyError::Exhausted(ExhaustedPool {
            upstream: "u".to_owned(),
            none: NoneAvailable {
                reasons,
                until: None,
                is_bound,
                is_busy,
            },
            wait: wait.map(Duration::from_secs),
        });
        add(&format!("exhausted {name}"), error);
    }
}

/// Adds the error for profiles without a credential.
fn lacking(add: &mut impl FnMut(&str, ProxyError)) {
    let failure = Some(SourceFailure::ExitStatus(1));
    for (name, failure, reasons, wait) in [
        ("awaited", None, vec![], None),
        (
            "failed",
            failure,
            vec![CooldownReason::RateLimit],
            Some(Duration::from_secs(9)),
        ),
    ] {
        let one = LackingProfile {
            profile: "p".to_owned(),
            source: "token_command",
            failure,
        };
        let error = ProxyError::NoCredential {
            upstream: "u".to_owned(),
            lacking: vec![one],
            reasons,
            wait,
        };
        add(&format!("no credential {name}"), error);
    }
}

/// Adds failed sends: each phase and each way to fail in it.
fn unanswered(add: &mut impl FnMut(&str, ProxyError)) {
    let mut failed = |name: &str, phase, kind, cause: Option<io::ErrorKind>| {
        let source = cause.map(|cause| io::Error::from(cause).into());
        let upstream = "u (host)".to_owned();
        let error = SendError {
            phase,
            kind,
            source,
            is_plain: false,
        };
        add(name, ProxyError::Upstream { upstream, error });
    };
    for (place, phase) in PHASES {
        for (way, kind) in KINDS {
            failed(&format!("no answer: {place} {way}"), phase, kind, None);
        }
    }
    let refused = Some(io::ErrorKind::ConnectionRefused);
    failed(
        "no answer: connection refused",
        Phase::Connect,
        SendErrorKind::Io,
        refused,
    );
}

/// Removes the texts for people. Finding lists stay.
fn without_messages(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                if key == "message" && value.is_string() {
                    *value = json!("*");
                } else {
                    without_messages(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_messages),
        _ => {}
    }
}

#[test]
fn codes_and_shapes_of_proxy_errors_are_pinned() {
    let mut facts = String::new();
    for (name, error) in errors() {
        let (side, phase, code) = (error.side(), error.phase(), error.code());
        facts.push_str(&format!("{name}: side={side} phase={phase} code={code}\n"));
        for (shape_name, shape) in SHAPES {
            let (head, body) = error.to_response(shape, "ID").into_parts();
            let mut fields: Vec<String> = head
                .headers
                .iter()
                .map(|(field, value)| format!("{field}: {}", value.to_str().unwrap()))
                .collect();
            fields.sort();
            if shape_name == "anthropic" {
                facts.push_str(&format!("{name}: {} [{}]\n", head.status.as_u16(), fields.join("] [")));
            }
            let typed = head.headers.get("x-amzn-errortype").map(|kind| kind.to_str().unwrap());
            let typed = typed
                .map(|kind| format!(" x-amzn-errortype={kind}"))
                .unwrap_or_default();
            let mut body: Value = serde_json::from_slice(&body).unwrap();
            without_messages(&mut body);
            facts.push_str(&format!("{name}: {shape_name}{typed} {body}\n"));
        }
    }
    same("error-answers.txt", &facts);
}

#[test]
fn types_of_statuses_and_stream_errors_are_pinned() {
    let mut facts = Vec::new();
    let statuses = [400, 401, 403, 404, 405, 408, 413, 417, 426, 429, 500, 502, 503, 504];
    for (name, shape) in SHAPES {
        let event = shape.error_event("CODE", "*", "ID");
        let event = event.map(|event| format!("{:?}", String::from_utf8(event.to_vec()).unwrap()));
        facts.push(format!("event {name} {}", event.as_deref().unwrap_or("-")));
        for status in statuses.map(|status| StatusCode::from_u16(status).unwrap()) {
            let body = shape.error_body(status.as_u16(), "CODE", "*", "ID");
            facts.push(format!("body {name} {} {body}", status.as_u16()));
            if let Some(kind) = shape.error_type_header(status.as_u16()) {
                facts.push(format!("x-amzn-errortype {name} {} {kind}", status.as_u16()));
            }
        }
    }
    same_lines("error-codes.txt", facts);
}

#[tokio::test]
async fn refusal_codes_of_the_admin_listener_are_pinned() {
    let open = antiphon::api::admin::AdminService::new(admin(antiphon::api::admin::Readiness::new()));
    let guarded = antiphon::api::admin::AdminService::new(api::with_token());
    let guessed = antiphon::api::admin::AdminService::new(api::with_token());
    for guess in 0..10 {
        let guess = format!("Bearer {guess}");
        api::answer(&guessed, api::get("/metrics", &[("authorization", &guess)])).await;
    }
    let mut facts = Vec::new();
    let json = &[("content-type", "application/json")][..];
    for (name, router, method, path, fields, body) in [
        ("unknown path", &open, "GET", "/nowhere", &[][..], ""),
        ("wrong method", &open, "DELETE", "/metrics", &[][..], ""),
        (
            "foreign host",
            &open,
            "GET",
            "/livez",
            &[("host", "evil.example")][..],
            "",
        ),
        ("no token", &guarded, "GET", "/admin/v1/status", &[][..], ""),
        (
            "too many wrong tokens",
            &guessed,
            "GET",
            "/admin/v1/status",
            &[("authorization", "Bearer the token")][..],
            "",
        ),
        ("bad limit", &open, "GET", "/admin/v1/repairs?limit=0", &[][..], ""),
        ("bad cursor", &open, "GET", "/admin/v1/sessions?after=x", &[][..], ""),
        ("bad query", &open, "GET", "/admin/v1/sessions?limit=x", &[][..], ""),
        ("unknown repair", &open, "GET", "/admin/v1/repairs/x", &[][..], ""),
        (
            "unknown profile",
            &open,
            "POST",
            "/admin/v1/profiles/x/x/clear",
            &[][..],
            "",
        ),
        ("unknown asset", &open, "GET", "/assets/nothing.js", &[][..], ""),
        ("no json", &open, "PUT", "/admin/v1/log-level", json, "x"),
        ("no content type", &open, "PUT", "/admin/v1/log-level", &[][..], "{}"),
        (
            "bad level",
            &open,
            "PUT",
            "/admin/v1/log-level",
            json,
            r#"{"level":"loud"}"#,
        ),
        ("no reload", &open, "POST", "/admin/v1/reload", &[][..], ""),
    ] {
        let method = method.parse().unwrap();
        let ask = api::Ask {
            method,
            path,
            fields,
            body,
        };
        let (status, _, text) = api::answer(router, ask).await;
        let mut told: Value = serde_json::from_str(&text).unwrap();
        told["detail"] = json!("*");
        facts.push(format!("{name}: {} {told}", status.as_u16()));
    }
    same_lines("admin-codes.txt", facts);
}
