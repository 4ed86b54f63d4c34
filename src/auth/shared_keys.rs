//! Keys that many clients send where a server checks none. They identify nobody.

/// Such keys, in lower case: from the instructions of local servers and of SDKs that insist on a key (2026-11).
const SHARED_KEYS: [&str; 31] = [
    "-",
    "anything",
    "api-key",
    "api_key",
    "changeme",
    "dummy",
    "dummy-key",
    "empty",
    "fake",
    "fake-key",
    "key",
    "lm-studio",
    "local",
    "n/a",
    "na",
    "no-key",
    "no-key-required",
    "none",
    "not-needed",
    "not-used",
    "null",
    "ollama",
    "placeholder",
    "secret",
    "sk-1234",
    "sk-dummy",
    "sk-no-key-required",
    "test",
    "token",
    "unused",
    "your-api-key",
];

/// Returns `true` for a key that many clients send, such as `ollama` or `EMPTY`.
pub fn is_shared_key(secret: &[u8]) -> bool {
    // `x`, `xxx` and `sk-xxx` too.
    let rest = secret.strip_prefix(b"sk-").unwrap_or(secret);
    rest.iter().all(|letter| letter.eq_ignore_ascii_case(&b'x'))
        || SHARED_KEYS
            .iter()
            .any(|key| secret.eq_ignore_ascii_case(key.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_everybody_are_shared() {
        for key in ["EMPTY", "ollama", "Dummy", "x", "XXXX", "sk-xxx", "sk-", ""] {
            assert!(is_shared_key(key.as_bytes()), "{key}");
        }
        for key in ["sk-ant-api03-x", "sk-proj-0", "xai-x", "AIzaSyx", "empty-1", "sk-or-v1"] {
            assert!(!is_shared_key(key.as_bytes()), "{key}");
        }
    }
}
