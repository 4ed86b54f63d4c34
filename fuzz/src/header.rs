//! The header filter of the data path.

use antiphon::proxy::headers::{for_client, for_trailers, for_upstream};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Headers of one connection: RFC 9110 7.6.1, and the two of RFC 9110 11.7.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authorization",
    "proxy-authenticate",
];

/// Largest number of headers in one block.
const LINES_MAX: usize = 100;

/// Filters lines `name: value`. Hop-by-hop headers, headers that `Connection` names, and the proxy's own headers never
/// pass. All others keep their values and order. Filtering is idempotent.
pub(super) fn headers(lines: &[u8]) {
    let headers = parse_headers(lines);
    let named = connection_names(&headers);
    for inspected in [false, true] {
        let out = for_upstream(headers.clone(), inspected);
        let own = |name: &str| inspected && name == "accept-encoding";
        let refused = |name: &str| !own(name) && ["host", "content-length", "expect"].contains(&name);
        assert_filtered(&headers, &out, &named, &own, &refused);
        if inspected {
            let coding: Vec<_> = out.get_all("accept-encoding").iter().collect();
            assert_eq!(coding, ["identity"]);
        }
        assert_eq!(for_upstream(out.clone(), inspected), out);
    }
    let mut out = headers.clone();
    for_client(&mut out);
    let chunked = headers.contains_key("transfer-encoding");
    assert_filtered(&headers, &out, &named, &|_| false, &|name| {
        chunked && name == "content-length"
    });
    let mut again = out.clone();
    for_client(&mut again);
    assert_eq!(again, out);

    let mut out = headers.clone();
    for_trailers(&mut out);
    let only_in_heads = ["authorization", "host", "content-length", "set-cookie"];
    assert_filtered(&headers, &out, &named, &|_| false, &|name| {
        only_in_heads.contains(&name)
    });
}

/// Checks that `out` contains every allowed header and nothing else.
fn assert_filtered(
    headers: &HeaderMap,
    out: &HeaderMap,
    named: &[String],
    own: &dyn Fn(&str) -> bool,
    refused: &dyn Fn(&str) -> bool,
) {
    let stripped = |name: &str| {
        HOP_BY_HOP.contains(&name)
            || named.iter().any(|word| word == name)
            || name.starts_with("x-antiphon-")
            || ["content-length", "transfer-encoding", "connection"]
                .iter()
                .any(|framing| name != *framing && name.replace('_', "-") == *framing)
            || refused(name)
    };
    for name in out.keys().map(HeaderName::as_str).filter(|name| !own(name)) {
        assert!(!stripped(name), "{name} passed");
        assert!(headers.contains_key(name), "{name} was added");
    }
    for name in headers.keys().map(HeaderName::as_str) {
        if !stripped(name) && !own(name) {
            let (before, after) = (headers.get_all(name), out.get_all(name));
            assert!(before.iter().eq(after.iter()), "{name} changed");
        }
    }
}

fn parse_headers(lines: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n').take(LINES_MAX) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

/// Returns the names in every `Connection` header, in lower case.
fn connection_names(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all("connection").iter();
    let words = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    words
        .map(|word| String::from_utf8_lossy(word.trim_ascii()).to_ascii_lowercase())
        .collect()
}
