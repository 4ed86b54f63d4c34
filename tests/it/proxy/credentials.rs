//! The operator's credentials: access to them, replacement of the client's credential, and no secret sent to another
//! host.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use antiphon::{
    auth::{
        AwsKeys, ClientTokens, Credential, Principal, PrincipalKey, Profile, Secret, TokenHash,
        principal::principal_of_credentials,
    },
    provider::{ProviderKind, Upstream},
    proxy::{
        ProxyError, RequestRefusal,
        credential::{Account, ApplyError, BodyToSign, KeyUse, apply_credential, authenticate_client},
        headers::for_upstream,
    },
    repair::Mode,
    splice::Segments,
    wire::ErrorShape,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Uri, request::Parts};
use proptest::{collection::vec, prelude::*, sample::select};

fn upstream(kind: ProviderKind, authority: &str) -> Upstream {
    Upstream {
        name: kind.label().to_owned(),
        kind,
        scheme: "https".parse().unwrap(),
        authority: authority.parse().unwrap(),
        base_path: String::new(),
        mode: Mode::Repair,
    }
}

fn secret(text: &str) -> Secret {
    Secret::new(text.to_owned())
}

fn profile(label: &str, credential: Credential) -> Profile {
    Profile {
        label: label.to_owned(),
        credential,
        weight: 1,
        organisation: None,
        models: Vec::new(),
        max_concurrent: None,
    }
}

/// Keys of AWS' own signature tests.
fn aws(session_token: Option<&str>, service: &str) -> Profile {
    let keys = AwsKeys {
        access_key_id: secret("AKIDEXAMPLE"),
        secret_access_key: secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
        session_token: session_token.map(secret),
        region: "us-east-1".to_owned(),
        service: service.to_owned(),
    };
    profile("aws", Credential::Aws(keys))
}

fn map(fields: &[(&str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    fields.iter().map(field).collect()
}

fn head(method: &str, uri: &str, fields: &[(&str, &str)]) -> Parts {
    let request = Request::builder().method(method).uri(uri).body(()).unwrap();
    let (mut parts, ()) = request.into_parts();
    parts.headers = for_upstream(map(fields), true);
    parts
}

/// Returns everything in a head that is sent over the wire.
fn seen(head: &Parts) -> String {
    let fields = head
        .headers
        .iter()
        .map(|(name, value)| format!("\n{name}: {}", value.to_str().unwrap()));
    format!("{}{}", head.uri, fields.collect::<String>())
}

/// 2015-08-30 12:36:00, the time of AWS' own signature tests.
const NOW: Duration = Duration::from_secs(1_440_938_160);

/// A row of [`SIGNATURES`].
type SignatureRow = (
    &'static str,
    &'static str,
    Option<&'static str>,
    &'static str,
    Option<&'static str>,
    &'static str,
    &'static str,
);

/// Method, URL, content type, body, session token, service, and the signature.
///
/// Computed by botocore 1.43.11: `SigV4Auth(Credentials(…), service, "us-east-1").add_auth(AWSRequest(…))` with
/// `botocore.auth.get_current_datetime` at `NOW`. The last row is `get-vanilla` of AWS' own tests.
#[rustfmt::skip]
const SIGNATURES: &[SignatureRow] = &[
    ("POST", "https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-3-haiku-20240307-v1%3A0/invoke", Some("application/json"), r#"{"messages":[]}"#, None, "bedrock", "6976f0c5ff2a9b3646eaa2066dbcce9676919d48e76121a4510520fd00fa08cf"),
    ("POST", "https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-3-haiku-20240307-v1%3A0/invoke", Some("application/json"), r#"{"messages":[]}"#, Some("session/token=="), "bedrock", "3ea8bb9d6d8526f1ace45b1601257b4c6cadd1dabe63131baf03fac444daa6ac"),
    ("GET", "https://bedrock-runtime.us-east-1.amazonaws.com:8443/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fx/converse?b=2&a=1%2F", None, "", None, "bedrock", "6fa541f1debeff90462acced1dbbdce16e8996b3c11b08a7f24ba06dcde0239e"),
    ("GET", "https://example.amazonaws.com/", None, "", None, "service", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
];

#[test]
fn a_signature_is_the_one_that_aws_computes() {
    for (method, url, content_type, body, session, service, signature) in SIGNATURES {
        let signed = [
            ("x-amz-date", "20000101T000000Z"),
            ("x-amz-security-token", "client"),
            ("x-amzn-trace-id", "t"),
        ];
        let fields: Vec<(&str, &str)> = content_type
            .iter()
            .map(|kind| ("content-type", *kind))
            .chain(signed)
            .collect();
        let mut head = head(method, url, &fields);
        let at = upstream(ProviderKind::Bedrock, head.uri.authority().unwrap().as_str());
        let pieces = spliced(body);
        apply_credential(&aws(*session, service), &at, &mut head, BodyToSign::Whole(&pieces), NOW).unwrap();
        let field = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap());
        assert!(
            field("authorization")
                .unwrap()
                .ends_with(&format!(", Signature={signature}")),
            "{}",
            seen(&head)
        );
        assert_eq!(
            (field("x-amz-date"), field("x-amz-security-token")),
            (Some("20150830T123600Z"), *session)
        );
        assert!(head.headers["authorization"].is_sensitive());
        assert!(field("x-amzn-trace-id").is_some() && field("host").is_none());
    }
}

/// A captured log.
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns `body` in pieces, as the repair of a long one produces it.
fn spliced(body: &str) -> Segments {
    let whole = Bytes::copy_from_slice(body.as_bytes());
    let Some((at, _)) = body.char_indices().nth(3) else {
        return Segments::whole(whole);
    };
    [whole.slice(..at), whole.slice(at..)].into_iter().collect()
}

#[test]
fn signing_writes_no_secret_to_the_log() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(Mutex::new(Written(Arc::clone(&lines))))
        .finish();
    tracing::subscriber::with_default(log, || {
        let mut head = head("POST", "https://h.example/model/m/invoke", &[]);
        let body = Segments::whole(Bytes::from_static(b"{}"));
        let at = upstream(ProviderKind::Bedrock, "h.example");
        apply_credential(
            &aws(Some("canary"), "bedrock"),
            &at,
            &mut head,
            BodyToSign::Whole(&body),
            NOW,
        )
        .unwrap();
        assert!(seen(&head).contains("canary"));
        tracing::trace!("this is heard");
    });
    let lines = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    assert!(lines.contains("this is heard") && lines.lines().count() == 1, "{lines}");
}

#[test]
fn a_streamed_body_cannot_be_signed() {
    let at = upstream(ProviderKind::Bedrock, "h.example");
    let mut head = head(
        "POST",
        "https://h.example/model/m/invoke",
        &[("authorization", "client")],
    );
    let refused = apply_credential(&aws(None, "bedrock"), &at, &mut head, BodyToSign::Streamed, NOW);
    assert_eq!(refused, Err(ApplyError::Streamed));
    assert_eq!(
        seen(&head),
        "https://h.example/model/m/invoke\naccept-encoding: identity"
    );
}

#[test]
fn each_kind_gets_its_key_in_its_own_header() {
    for kind in ProviderKind::ALL {
        let (name, value) = match kind {
            ProviderKind::Anthropic => ("x-api-key", "K"),
            ProviderKind::Gemini => ("x-goog-api-key", "K"),
            ProviderKind::Azure => ("api-key", "K"),
            _ => ("authorization", "Bearer K"),
        };
        for (credential, name, value) in [
            (Credential::Key(secret("K")), name, value),
            (Credential::Bearer(secret("K")), "authorization", "Bearer K"),
        ] {
            let mut head = head("POST", "https://h.example/x", &[]);
            apply_credential(
                &profile("p", credential),
                &upstream(kind, "h.example"),
                &mut head,
                BodyToSign::Streamed,
                NOW,
            )
            .unwrap();
            assert_eq!(
                seen(&head),
                format!("https://h.example/x\naccept-encoding: identity\n{name}: {value}")
            );
            assert!(head.headers[name].is_sensitive() && !format!("{head:?}").contains(": \"Bearer K"));
        }
    }
}

/// Headers of a client that are, contain or resemble a credential, and one that is none.
const SENT: &[(&str, &str)] = &[
    ("authorization", "Bearer client"),
    ("authorization", "AWS4-HMAC-SHA256 Credential=client"),
    ("x-api-key", "client"),
    ("x_api_key", "client"),
    ("api-key", "client"),
    ("x-goog-api-key", "client"),
    ("x-goog-user-project", "client"),
    ("openai-organization", "client"),
    ("x-amz-security-token", "client"),
    ("x-amz-content-sha256", "client"),
    ("cookie", "client"),
    ("x-antiphon-client-token", "client"),
    ("proxy-authorization", "client"),
    (
        "connection",
        "x-api-key, authorization, x-goog-api-key, api-key, x-amz-date, content-type",
    ),
    ("content-type", "application/json"),
    ("x-amzn-bedrock-trace", "kept"),
];
const QUERIES: &[(&str, &str)] = &[
    ("", ""),
    ("?alt=sse", "?alt=sse"),
    ("?key=client", ""),
    ("?alt=sse&k%65y=client&%6bey=client&x=%2f", "?alt=sse&x=%2f"),
    ("?X-Amz-Signature=client&X-Amz-Credential=client&monkey=1", "?monkey=1"),
    ("?access_token=client&b", "?b"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Applies credentials for attempts in any order over several upstreams: each secret goes to its own upstream only.
    #[test]
    fn no_secret_goes_to_another_upstream(
        steps in vec((0..4_usize, 0..3_usize, 0..4_usize, vec(select(SENT), 0..6), select(QUERIES), 1..3_usize), 1..8),
    ) {
        let kinds = [ProviderKind::Anthropic, ProviderKind::Gemini, ProviderKind::OpenAi, ProviderKind::Bedrock];
        let places: Vec<(Upstream, Vec<Profile>)> = kinds.iter().enumerate().map(|(u, kind)| {
            let credential = |p: usize| {
                let canary = || secret(&format!("canary-{u}-{p}"));
                if *kind == ProviderKind::Bedrock {
                    Credential::Aws(AwsKeys {
                        access_key_id: canary(),
                        secret_access_key: secret("canary-never-seen"),
                        session_token: Some(canary()),
                        region: "r".to_owned(),
                        service: "bedrock".to_owned(),
                    })
                } else if p == 1 { Credential::Bearer(canary()) } else { Credential::Key(canary()) }
            };
            let profiles = (0..3).map(|p| profile(&format!("p{p}"), credential(p))).collect();
            (upstream(*kind, &format!("h{u}.example")), profiles)
        }).collect();
        let body = Segments::whole(Bytes::from_static(b"{}"));
        for (u, p, other, fields, (query, kept), attempts) in steps {
            let (at, profiles) = &places[u];
            let mut head = head("POST", &format!("https://h{u}.example/v1/x{query}"), &fields);
            for attempt in 0..attempts {
                let p = (p + attempt) % profiles.len();
                prop_assert_eq!(apply_credential(&profiles[p], at, &mut head, BodyToSign::Whole(&body), NOW), Ok(()));
                let wire = seen(&head);
                let canary = format!("canary-{u}-{p}");
                prop_assert!(wire.contains(&canary), "{wire}");
                prop_assert!(!wire.replace(&canary, "").contains("canary") && !wire.contains("client"), "{wire}");
                prop_assert_eq!(head.uri.to_string(), format!("https://h{u}.example/v1/x{kept}"));
                let whole = !fields.iter().any(|(name, _)| *name == "connection");
                for (name, value) in fields.iter().filter(|(name, value)| whole && *value == "kept" || *name == "x-amzn-bedrock-trace") {
                    prop_assert_eq!(head.headers.get(*name).unwrap(), value);
                }
            }
            // Nothing is applied for another upstream, and the client's own credential is removed.
            let mut astray = head.clone();
            astray.uri = Uri::try_from(format!("https://h{other}.example/v1/x")).unwrap();
            let refused = apply_credential(&profiles[p], at, &mut astray, BodyToSign::Whole(&body), NOW);
            prop_assert_eq!(refused.is_ok(), u == other);
            prop_assert!(u == other || !seen(&astray).contains("canary"));
            astray.uri = Uri::try_from(format!("http://h{u}.example/v1/x")).unwrap();
            prop_assert_eq!(apply_credential(&profiles[p], at, &mut astray, BodyToSign::Whole(&body), NOW), Err(ApplyError::WrongHost));
            prop_assert!(!seen(&astray).contains("canary"));
        }
    }
}

const TOKEN: &str = "x-antiphon-client-token";

fn key_use(has_profiles: bool) -> KeyUse {
    if has_profiles {
        KeyUse::Replaced
    } else {
        KeyUse::PassedOn
    }
}

/// A token that is not known, or not any more, is no key of the provider.
type Fields<'f> = &'f [(&'f str, &'f str)];
type Judged<'f> = Result<Option<&'f str>, RequestRefusal>;

#[test]
fn an_unknown_client_token_is_no_key() {
    let key = PrincipalKey::new([1; 32]);
    let known = ClientTokens::new(vec![("ci".to_owned(), TokenHash::hash_token(b"antiphon_1"))]);
    let none = ClientTokens::default();
    let refused = Err(RequestRefusal::ClientToken);
    let unknown = ("x-api-key", "antiphon_3");
    let rows: [(&ClientTokens, Fields<'_>, Option<&str>, Judged<'_>); 5] = [
        (&known, &[unknown], None, refused),
        (&known, &[], Some("key=antiphon_3"), refused),
        (&known, &[("x-api-key", "sk-1")], None, Ok(None)),
        // The provider may be another proxy with tokens of its own.
        (&known, &[unknown, (TOKEN, "antiphon_1")], None, Ok(Some("ci"))),
        (&none, &[unknown], None, Ok(None)),
    ];
    for (tokens, fields, query, wanted) in rows {
        let found = authenticate_client(tokens, &key, &map(fields), query, None, KeyUse::PassedOn);
        assert_eq!(found.map(|account| account.token), wanted, "{fields:?} {query:?}");
    }
}

#[test]
fn a_client_token_gives_access_to_profiles() {
    let key = PrincipalKey::new([1; 32]);
    let entry = |name: &str, token: &[u8]| (name.to_owned(), TokenHash::hash_token(token));
    let tokens = ClientTokens::new(vec![entry("ci", b"antiphon_1"), entry("dev", b"antiphon_2")]);
    let none = ClientTokens::default();
    let of = |tokens: &ClientTokens, fields: &[(&str, &str)], query: Option<&str>, profiles: bool| {
        authenticate_client(tokens, &key, &map(fields), query, None, key_use(profiles))
            .map(|caller| (caller.token.map(ToOwned::to_owned), caller.principal))
    };
    let named = |name: &str| Ok((Some(name.to_owned()), Principal::of_token(&key, name)));
    let nameless = |secret: &str| {
        Ok((
            None,
            principal_of_credentials(&key, &map(&[("x-api-key", secret)]), None),
        ))
    };
    let refused = Err(RequestRefusal::ClientToken);
    // With profiles, the token may be in its own header or in any credential header.
    assert_eq!(of(&tokens, &[(TOKEN, "antiphon_2")], None, true), named("dev"));
    assert_eq!(
        of(&tokens, &[(TOKEN, "antiphon_2"), ("x-api-key", "dummy")], None, true),
        named("dev")
    );
    assert_eq!(of(&tokens, &[("x-api-key", "antiphon_1")], None, true), named("ci"));
    assert_eq!(
        of(&tokens, &[("authorization", "Bearer antiphon_1")], None, true),
        named("ci")
    );
    assert_eq!(of(&tokens, &[], Some("key=antiphon_1"), true), named("ci"));
    assert_eq!(
        of(
            &tokens,
            &[("x-api-key", "dummy"), ("authorization", "Bearer antiphon_1")],
            None,
            true
        ),
        named("ci")
    );
    for fields in [
        &[][..],
        &[("x-api-key", "antiphon_3")],
        &[("x-api-key", "ci")],
        &[(TOKEN, "antiphon_3"), ("x-api-key", "antiphon_1")],
        &[(TOKEN, "antiphon_1"), (TOKEN, "antiphon_1")],
        &[(TOKEN, "")],
    ] {
        assert_eq!(of(&tokens, fields, None, true), refused, "{fields:?}");
    }

    // With the client's own credential, a token is optional but must not be wrong.
    assert_eq!(of(&tokens, &[("x-api-key", "sk-1")], None, false), nameless("sk-1"));
    assert_eq!(
        of(&tokens, &[("x-api-key", "sk-1"), (TOKEN, "antiphon_1")], None, false),
        named("ci")
    );
    assert_eq!(
        of(&tokens, &[("x-api-key", "sk-1"), (TOKEN, "antiphon_3")], None, false),
        refused
    );
    assert_eq!(
        of(&none, &[("x-api-key", "sk-1"), (TOKEN, "antiphon_1")], None, false),
        refused
    );

    // Without configured tokens only loopback may call, and everyone may use the profiles.
    assert_eq!(of(&none, &[("x-api-key", "dummy")], None, true), nameless("dummy"));
    assert_eq!(of(&none, &[], None, true), Ok((None, Principal::NONE)));
    let fields = map(&[("api-key", "canary")]);
    let caller: Account<'_> = authenticate_client(&none, &key, &fields, None, None, key_use(true)).unwrap();
    assert!(!format!("{caller:?} {tokens:?}").contains("canary"));
}

#[test]
fn a_missing_client_token_is_an_error_in_the_providers_shape() {
    let error = ProxyError::Refused(RequestRefusal::ClientToken);
    assert_eq!(
        (error.code(), error.side(), error.phase()),
        ("client_token", "client", "request")
    );
    let rows = [
        (ErrorShape::Anthropic, "/error/type", "authentication_error"),
        (ErrorShape::OpenAi, "/error/type", "invalid_request_error"),
        (ErrorShape::OpenAi, "/error/code", "invalid_api_key"),
        (ErrorShape::Responses, "/error/code", "invalid_api_key"),
        (ErrorShape::Gemini, "/error/status", "UNAUTHENTICATED"),
    ];
    for (shape, pointer, word) in rows {
        let answer = error.to_response(shape, "id");
        let body: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!(answer.status(), 401);
        assert_eq!(body.pointer(pointer).unwrap(), word, "{body}");
        assert_eq!(answer.headers()["x-should-retry"], "false");
        assert_eq!(answer.headers()["www-authenticate"], "Bearer realm=\"antiphon\"");
        assert_eq!(answer.headers()["proxy-status"], "antiphon; error=http_request_denied");
    }
    assert_eq!(
        error.to_response(ErrorShape::Bedrock, "id").headers()["x-amzn-errortype"],
        "AccessDeniedException"
    );
}
