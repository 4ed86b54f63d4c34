//! The origin of a conversation: its upstream and its client program. Results are carried over within one origin.

use http::{HeaderMap, header::USER_AGENT};

use crate::digest::digest_of;

/// Returns the hash of an upstream and of the program that the client names first, without its version.
pub(in crate::proxy) fn client_origin(upstream: &str, headers: &HeaderMap) -> [u8; 32] {
    let agent = headers.get(USER_AGENT).map_or(&b""[..], |agent| agent.as_bytes());
    let program = agent.split(|byte| matches!(byte, b'/' | b' ')).next();
    digest_of([&b"origin"[..], upstream.as_bytes(), program.unwrap_or_default()])
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn versions_are_one_origin_and_programs_are_not() {
        let origin = |agent: &'static str| {
            let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(agent))]);
            client_origin("anthropic", &headers)
        };
        assert_eq!(origin("claude-cli/1.0.83 (external)"), origin("claude-cli/2.1.0"));
        assert_ne!(origin("claude-cli/2.1.0"), origin("openai-python/2.1.0"));
        assert_ne!(
            client_origin("one", &HeaderMap::new()),
            client_origin("two", &HeaderMap::new())
        );
    }
}
