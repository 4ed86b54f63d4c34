//! The header with which clients enable betas of Anthropic's API.

use http::{HeaderMap, HeaderValue};

/// The header. Its values are tokens with commas between them.
pub(super) const HEADER: &str = "anthropic-beta";

/// Returns `true` if the client enables a beta.
pub(super) fn has_beta(headers: &HeaderMap, beta: &str) -> bool {
    let values = headers.get_all(HEADER).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|token| token.trim() == beta)
}

/// Removes a beta that the provider does not know. Returns `false` if the client does not enable it.
pub(super) fn remove_beta(headers: &mut HeaderMap, beta: &str) -> bool {
    if !has_beta(headers, beta) {
        return false;
    }
    let values: Vec<HeaderValue> = headers.get_all(HEADER).iter().cloned().collect();
    headers.remove(HEADER);
    for value in values {
        let Ok(text) = value.to_str() else {
            headers.append(HEADER, value);
            continue;
        };
        let kept = text.split(',').map(str::trim).filter(|token| *token != beta);
        let kept = kept.collect::<Vec<_>>().join(",");
        if let Some(kept) = HeaderValue::from_str(&kept).ok().filter(|kept| !kept.is_empty()) {
            headers.append(HEADER, kept);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_goes_and_the_others_stay() {
        let mut headers = HeaderMap::new();
        for value in ["a-1, b-2", "b-2", "c-3,b-2,d-4"] {
            headers.append(HEADER, HeaderValue::from_static(value));
        }
        assert!(!remove_beta(&mut headers, "b"));
        assert!(remove_beta(&mut headers, "b-2"));
        let left: Vec<_> = headers.get_all(HEADER).iter().collect();
        assert_eq!(left, ["a-1", "c-3,d-4"]);
    }
}
