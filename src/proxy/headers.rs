//! Headers that pass the proxy, in both directions. Requests get no trace of the proxy (`Via`, `X-Forwarded-*`).
//!
//! RFC 9110 7.6.1: a header that the sender names in `Connection` is removed. A client that names its own credential
//! there loses it. The proxy sets its own headers afterwards, so that they cannot be removed that way.

use std::fmt;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, SET_COOKIE, TRANSFER_ENCODING,
    },
};

use memchr::memmem;

use crate::{api::ledger_api, provider::decode_query};

/// `x-antiphon-request-id`.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-antiphon-request-id");
/// `x-antiphon-repair`.
pub(super) const REPAIR: HeaderName = HeaderName::from_static("x-antiphon-repair");
/// `x-antiphon-rule`.
pub(super) const RULE: HeaderName = HeaderName::from_static("x-antiphon-rule");
/// `x-antiphon-explained`: the row by which the text of an error was explained.
pub(super) const EXPLAINED: HeaderName = HeaderName::from_static("x-antiphon-explained");
/// `x-antiphon-attempts`.
pub(super) const ATTEMPTS: HeaderName = HeaderName::from_static("x-antiphon-attempts");
/// `x-antiphon-profile`.
pub(super) const PROFILE: HeaderName = HeaderName::from_static("x-antiphon-profile");
/// `x-antiphon-owner`.
pub(super) const OWNER: HeaderName = HeaderName::from_static("x-antiphon-owner");
/// `x-antiphon-pending-results`.
pub(super) const PENDING_RESULTS: HeaderName = HeaderName::from_static("x-antiphon-pending-results");
/// `x-antiphon-fault`.
pub(super) const FAULT: HeaderName = HeaderName::from_static("x-antiphon-fault");
/// `x-antiphon-phase`.
pub(super) const PHASE: HeaderName = HeaderName::from_static("x-antiphon-phase");
/// `x-antiphon-mode`.
pub(super) const MODE: HeaderName = HeaderName::from_static("x-antiphon-mode");
/// `x-antiphon-provisional`: ids of calls whose answers in the request are not final, or `*` for all.
pub(super) const PROVISIONAL: HeaderName = HeaderName::from_static("x-antiphon-provisional");
/// `x-antiphon-intent`: `new` if the user wants an effect once more, so that no earlier result stands for it.
pub(super) const INTENT: HeaderName = HeaderName::from_static(ledger_api::REPEAT_HEADER);
/// `x-antiphon-user`: the user whose results a reader of the ledger wants, where request bodies name users.
pub(super) const USER: HeaderName = HeaderName::from_static("x-antiphon-user");
/// `x-antiphon-client-token`.
pub(super) const CLIENT_TOKEN: HeaderName = HeaderName::from_static("x-antiphon-client-token");
/// `x-should-retry`, which the official SDKs obey.
pub(super) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// `proxy-status`, RFC 9209.
pub(super) const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Name of the proxy in `proxy-status`.
const OWN_STATUS: &[u8] = b"antiphon";
/// Prefix of the proxy's own headers.
const OWN_PREFIX: &str = "x-antiphon-";

/// Returns `true` for a header that concerns one connection only.
// As text: comparing names one by one costs more, and both heads of every exchange are filtered.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "proxy-authorization"
            | "proxy-authenticate"
    )
}

/// Returns `true` for a header that may contain a secret.
fn may_hold_secret(name: &str) -> bool {
    matches!(
        name,
        "authorization" | "cookie" | "set-cookie" | "x-api-key" | "api-key" | "x-goog-api-key" | "x-amz-security-token"
    )
}

/// Returns the headers of a request that are sent upstream, without `Host` and `Content-Length`.
///
/// The HTTP client sets `Host`, and the caller the length of the body that is sent.
pub fn for_upstream(mut headers: HeaderMap, inspected: bool) -> HeaderMap {
    strip_internal(&mut headers);
    // `Expect` is answered by the proxy's own server.
    for name in [HOST, CONTENT_LENGTH, EXPECT] {
        headers.remove(name);
    }
    join_cookies(&mut headers);
    if inspected {
        // The watcher can read only an uncompressed answer.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    for (name, value) in &mut headers {
        if may_hold_secret(name.as_str()) {
            // HTTP/2 must not put secrets into its header table, and `Debug` must not print them.
            value.set_sensitive(true);
        }
    }
    headers
}

/// Joins the cookies of a request, which HTTP/2 may divide into several headers: RFC 9113 8.2.3. Many servers of HTTP/1 read
/// only the first.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// Removes the headers of an answer that are not for the client.
pub fn for_client(headers: &mut HeaderMap) {
    remove_own_status(headers);
    // RFC 9112 6.3: the transfer coding overrides a length, which must then not be forwarded.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip_internal(headers);
}

/// Removes each `proxy-status` line with a member of this proxy.
fn remove_own_status(headers: &mut HeaderMap) {
    let is_own = |member: &[u8]| {
        let name = member.split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(OWN_STATUS)
    };
    let is_foreign = |value: &&HeaderValue| !list_members(value.as_bytes()).any(is_own);
    let status = headers.get_all(PROXY_STATUS);
    if status.iter().all(|value| is_foreign(&value)) {
        return;
    }
    let kept: Vec<HeaderValue> = status.iter().filter(is_foreign).cloned().collect();
    headers.remove(PROXY_STATUS);
    for value in kept {
        headers.append(PROXY_STATUS, value);
    }
}

/// Returns the members of a structured list: RFC 9651 4.2.1. A comma within a quoted string separates none.
fn list_members(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    list.split(move |byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
        *byte == b',' && !is_quoted
    })
}

/// Removes from trailers what may only be in a head.
pub fn for_trailers(trailers: &mut HeaderMap) {
    remove_own_status(trailers);
    strip_internal(trailers);
    // RFC 9110 6.5.1: framing, routing and authentication fields are not allowed in trailers.
    for name in [AUTHORIZATION, HOST, CONTENT_LENGTH, SET_COOKIE] {
        trailers.remove(name);
    }
}

/// Removes hop-by-hop headers, headers named in `Connection`, the proxy's own, and framing in disguise.
fn strip_internal(headers: &mut HeaderMap) {
    // Read first: `Connection` itself is removed below.
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    let goes = |name: &&HeaderName| {
        is_hop_by_hop(name.as_str()) || name.as_str().starts_with(OWN_PREFIX) || is_framing_in_disguise(name)
    };
    let gone: Vec<HeaderName> = headers.keys().filter(goes).cloned().collect();
    for name in named.into_iter().chain(gone) {
        headers.remove(name);
    }
}

/// Returns `true` for a framing header spelled with `_`, which CGI-like gateways read as `-`.
fn is_framing_in_disguise(name: &HeaderName) -> bool {
    matches!(name.as_str(), "content_length" | "transfer_encoding")
}

/// Headers for a log: all names, and the values of harmless headers only.
pub(super) struct RedactedHeaders<'a>(pub &'a HeaderMap);

impl fmt::Debug for RedactedHeaders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HARMLESS: [&str; 5] = [
            "accept",
            "content-length",
            "content-type",
            "content-encoding",
            "accept-encoding",
        ];
        let shown = self.0.iter().map(|(name, value)| {
            let value = value.to_str().ok().filter(|_| HARMLESS.contains(&name.as_str()));
            (name.as_str(), value.unwrap_or("…"))
        });
        f.debug_map().entries(shown).finish()
    }
}

/// A client's signature over the body of its request, which any edit would break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodySignature {
    /// `SigV4` in `Authorization`. With a profile the proxy signs the body itself, after all edits.
    Replaceable,
    /// Any other. Such a body is never edited, even if a profile's credential replaces the signature.
    Lasting,
}

/// Schemes of `Authorization` that sign the body: `SigV4`, `SigV4a`, and Oracle Cloud's.
const SIGNING_SCHEMES: [(&str, BodySignature); 3] = [
    ("AWS4-HMAC-SHA256", BodySignature::Replaceable),
    ("AWS4-ECDSA-P256-SHA256", BodySignature::Lasting),
    ("Signature", BodySignature::Lasting),
];

/// Query parameters of an address that AWS's schemes have signed, in lower case.
const SIGNING_PARAMETERS: [&str; 2] = ["x-amz-algorithm", "x-amz-signature"];

/// The header of HTTP message signatures: RFC 9421.
const SIGNATURE_INPUT: HeaderName = HeaderName::from_static("signature-input");
/// The digest of the body, which such a signature may cover.
const BODY_DIGEST: &[u8] = b"content-digest";

/// Finds the client's signature over the body. `None` if it has none.
fn find_signature(headers: &HeaderMap, query: Option<&str>) -> Option<BodySignature> {
    let mut pairs = query.unwrap_or_default().split('&');
    let names_signature = |pair: &str| {
        // Compared decoded, as the provider does.
        let name = decode_query(pair.split('=').next().unwrap_or_default());
        SIGNING_PARAMETERS
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    };
    let mut inputs = headers.get_all(SIGNATURE_INPUT).iter();
    if pairs.any(names_signature) || inputs.any(|input| memmem::find(input.as_bytes(), BODY_DIGEST).is_some()) {
        return Some(BodySignature::Lasting);
    }
    headers.get_all(AUTHORIZATION).iter().find_map(|value| {
        let scheme = value.as_bytes().split(u8::is_ascii_whitespace).next()?;
        let known = SIGNING_SCHEMES
            .iter()
            .find(|(name, _)| scheme.eq_ignore_ascii_case(name.as_bytes()));
        known.map(|(_, signature)| *signature)
    })
}

/// Returns `true` if the client has signed the body of its request.
pub(super) fn is_signed(headers: &HeaderMap, query: Option<&str>) -> bool {
    find_signature(headers, query).is_some()
}

/// Returns `true` if an edit of the body could break a client's signature that reaches the provider.
///
/// `has_profile` is set if a profile's credential replaces the client's. Its own signature is made after all edits.
pub(super) fn forbids_edits(headers: &HeaderMap, query: Option<&str>, has_profile: bool) -> bool {
    match find_signature(headers, query) {
        None => false,
        Some(BodySignature::Replaceable) => !has_profile,
        Some(BodySignature::Lasting) => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    name.parse::<HeaderName>().unwrap(),
                    value.parse::<HeaderValue>().unwrap(),
                )
            })
            .collect()
    }

    #[test]
    fn what_connection_names_is_removed_and_the_rest_keeps_its_order() {
        let headers = map(&[
            ("connection", "close, X-One"),
            ("connection", "x-two"),
            ("x-one", "1"),
            ("x-two", "2"),
            ("x-three", "a"),
            ("x-three", "b"),
            ("x-antiphon-session", "s"),
            ("x-forwarded-for", "1.2.3.4"),
        ]);
        let mut out = HeaderMap::new();
        out.append("x-three", "a".parse().unwrap());
        out.append("x-three", "b".parse().unwrap());
        out.append("x-forwarded-for", "1.2.3.4".parse().unwrap());
        assert_eq!(for_upstream(headers, false), out);
    }

    #[test]
    fn divided_cookies_become_one_header() {
        for (sent, joined) in [
            (&["a=1"][..], "a=1"),
            (&["a=1", "b=2", "c=\"x y\""], "a=1; b=2; c=\"x y\""),
        ] {
            let pairs: Vec<_> = sent.iter().map(|cookie| ("cookie", *cookie)).collect();
            let out = for_upstream(map(&pairs), false);
            assert!(out.get_all("cookie").iter().eq([joined]), "{sent:?}");
            assert!(out["cookie"].is_sensitive());
        }
    }

    #[test]
    fn a_provider_cannot_speak_for_the_proxy() {
        let own = [
            "antiphon; error=dns_error",
            "cdn; hit, Antiphon",
            " antiphon;error=x",
            r#"cdn; details="a \" b", antiphon"#,
        ];
        let foreign = [
            "cdn; hit",
            "antiphonal; hit",
            r#"cdn; details="x, antiphon""#,
            r#"cdn; details="x\", antiphon""#,
        ];
        let pairs = own.iter().chain(&foreign).map(|value| ("proxy-status", *value));
        let pairs: Vec<_> = pairs.collect();
        for filter in [for_client, for_trailers] {
            let mut headers = map(&pairs);
            filter(&mut headers);
            assert!(headers.get_all("proxy-status").iter().eq(foreign), "{headers:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn no_hop_by_hop_header_leaks(
            names in vec(select(vec![
                "Connection", "keep-alive", "TE", "trailer", "Transfer-Encoding", "upgrade", "proxy-authorization",
                "x-api-key", "authorization", "x-a", "x-b", "content-type", "host", "content-length", "expect",
                "x-antiphon-mode", "content_length",
            ]), 0..12),
            values in vec(select(vec!["a", "close", "x-a", "X-B , close", "authorization", ",,", "\"x-a\"", "x-a;q=1"]), 12),
            inspected in any::<bool>(),
        ) {
            let pairs: Vec<_> = names.into_iter().zip(values).collect();
            let headers = map(&pairs);
            let named = |name: &str| pairs.iter().any(|(key, value)| {
                key.eq_ignore_ascii_case("connection") && value.split(',').any(|word| word.trim().eq_ignore_ascii_case(name))
            });
            let out = for_upstream(headers.clone(), inspected);
            for name in out.keys().map(HeaderName::as_str) {
                prop_assert!(!is_hop_by_hop(name) && !named(name), "{name} leaked");
                prop_assert!(!["host", "content-length", "content_length", "expect", "x-antiphon-mode"].contains(&name));
            }
            for name in ["x-api-key", "authorization", "x-a", "x-b", "content-type"] {
                if !named(name) {
                    let (before, after) = (headers.get_all(name), out.get_all(name));
                    prop_assert!(before.iter().eq(after.iter()), "{name} changed");
                }
            }
            prop_assert_eq!(out.contains_key("accept-encoding"), inspected);
        }
    }

    #[test]
    fn a_log_line_holds_no_secret() {
        let headers = map(&[("x-api-key", "sk-canary"), ("content-type", "text/plain")]);
        let shown = format!("{:?}", RedactedHeaders(&headers));
        assert!(!shown.contains("canary") && shown.contains("text/plain"), "{shown}");
    }
}
