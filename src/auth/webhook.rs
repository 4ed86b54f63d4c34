//! Standard Webhooks: an HMAC-SHA256 over id, time and bytes authenticates the sender of a body. Pure.

use std::{fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// Prefix of a written key.
const KEY_PREFIX: &str = "whsec_";
/// Prefix of the supported kind of signature.
const SIGNATURE_PREFIX: &str = "v1,";
/// Longest difference between the sender's time and the proxy's, in either direction.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(300);
/// Allowed lengths of a key in bytes, from the standard.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Block size of SHA-256 in bytes.
const BLOCK_BYTES: usize = 64;
/// Signatures of one body that are checked. Further ones are ignored.
const SIGNATURES_MAX: usize = 16;

/// The secret key that verifies a service's signatures.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookKey(Vec<u8>);

impl fmt::Debug for WebhookKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookKey(***)")
    }
}

/// The error for a text that is not a key. The text is never repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected whsec_ and 24 to 64 bytes in base64")]
pub struct WebhookKeyParseError;

/// The signed parts of a request.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'r> {
    /// `webhook-id`.
    pub id: &'r str,
    /// `webhook-timestamp`: seconds since 1970.
    pub timestamp: &'r str,
    /// `webhook-signature`: signatures separated by blanks.
    pub signatures: &'r str,
    /// The bytes of the body.
    pub body: &'r [u8],
}

impl WebhookKey {
    /// Parses a written key.
    pub fn parse(text: &str) -> Result<Self, WebhookKeyParseError> {
        let key = text
            .strip_prefix(KEY_PREFIX)
            .and_then(|text| decode_base64(text.as_bytes()));
        key.filter(|key| KEY_BYTES.contains(&key.len()))
            .map(Self)
            .ok_or(WebhookKeyParseError)
    }

    /// Returns `true` if a timestamp is within 300 seconds of `now`: what a signature needs before its body is read.
    pub fn is_timely(timestamp: &str, now: Duration) -> bool {
        // `parse` alone would accept a leading `+`.
        let is_time = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let at = timestamp.parse().ok().filter(|_| is_time).map(Duration::from_secs);
        at.is_some_and(|at| at.abs_diff(now) <= CLOCK_TOLERANCE)
    }

    /// Returns `true` if a signature is valid and the time is within 300 seconds of `now`. Compares every signature in
    /// full.
    pub fn is_authentic(&self, signed: &SignedRequest<'_>, now: Duration) -> bool {
        let is_near = Self::is_timely(signed.timestamp, now);
        // A dot in the id could shift bytes between the id and the time.
        if signed.id.is_empty() || signed.id.contains('.') || !is_near {
            return false;
        }
        let (id, time) = (signed.id.as_bytes(), signed.timestamp.as_bytes());
        let own = self.compute_hmac(&[id, b".", time, b".", signed.body]);
        // The standard sends several signatures while a key is rotated.
        let said = signed.signatures.split(' ').take(SIGNATURES_MAX);
        let known = said.filter_map(|one| decode_base64(one.strip_prefix(SIGNATURE_PREFIX)?.as_bytes()));
        // No early exit: the time must not reveal which signature matched.
        known.fold(Choice::from(0), |found, mac| found | mac.ct_eq(&own)).into()
    }

    /// Returns the signature of a message that the proxy sends.
    pub fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let code = self.compute_hmac(&[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]);
        format!("{SIGNATURE_PREFIX}{}", STANDARD.encode(code))
    }

    /// Computes the HMAC (RFC 2104) with SHA-256.
    fn compute_hmac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut block = [0_u8; BLOCK_BYTES];
        // A key is never longer than a block, so it is never hashed first.
        block.iter_mut().zip(&self.0).for_each(|(byte, key)| *byte = *key);
        let inner = block.map(|byte| byte ^ 0x36);
        let outer = block.map(|byte| byte ^ 0x5c);
        let mut hash = Sha256::new_with_prefix(inner);
        for part in parts {
            hash.update(part);
        }
        Sha256::new_with_prefix(outer)
            .chain_update(hash.finalize())
            .finalize()
            .into()
    }
}

/// Decodes base64 with or without padding; `None` for anything else.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let bare = text
        .strip_suffix(b"==")
        .or_else(|| text.strip_suffix(b"="))
        .unwrap_or(text);
    if bare.len() % 4 == 1 || (bare.len() != text.len() && !text.len().is_multiple_of(4)) {
        return None;
    }
    let mut bytes = Vec::with_capacity(bare.len() * 3 / 4);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for letter in bare {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.extend(u8::try_from((bits >> held) & 0xff));
            bits &= (1 << held) - 1;
        }
    }
    // Remaining bits must be zero, or two texts would mean the same bytes.
    (bits == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> WebhookKey {
        WebhookKey(bytes.to_vec())
    }

    fn hex(bytes: &[u8]) -> String {
        bytes
            .iter()
            .flat_map(|byte| format!("{byte:02x}").into_bytes())
            .map(char::from)
            .collect()
    }

    #[test]
    fn the_code_is_that_of_rfc_4231() {
        for (bytes, data, mac) in [
            (
                &[0x0b; 20][..],
                &b"Hi There"[..],
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 20],
                &[0xdd; 50],
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            ),
        ] {
            assert_eq!(hex(&key(bytes).compute_hmac(&[data])), mac);
        }
    }

    // The example of the standard's own libraries (svix-webhooks, rust/src/webhooks.rs).
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const SIGNED: SignedRequest<'static> = SignedRequest {
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp: "1614265330",
        signatures: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        body: br#"{"test": 2432232314}"#,
    };
    const NOW: Duration = Duration::from_secs(1_614_265_330);

    #[test]
    fn a_signature_holds_for_these_bytes_this_id_and_about_this_time() {
        let key = WebhookKey::parse(SECRET).unwrap();
        assert!(key.is_authentic(&SIGNED, NOW));
        assert!(
            key.is_authentic(&SIGNED, NOW + CLOCK_TOLERANCE)
                && key.is_authentic(&SIGNED, NOW.saturating_sub(CLOCK_TOLERANCE))
        );
        let second = Duration::from_secs(1);
        assert!(!key.is_authentic(&SIGNED, NOW + CLOCK_TOLERANCE + second));
        assert!(!key.is_authentic(&SIGNED, NOW.saturating_sub(CLOCK_TOLERANCE + second)));
        let several = format!("v1a,AAAA v1,AAAA {} v2,x", SIGNED.signatures);
        assert!(key.is_authentic(
            &SignedRequest {
                signatures: &several,
                ..SIGNED
            },
            NOW
        ));
        for wrong in [
            SignedRequest {
                id: "msg_p5jXN8AQM9LWM0D4loKWxJel",
                ..SIGNED
            },
            SignedRequest { id: "", ..SIGNED },
            SignedRequest {
                timestamp: "1614265331",
                ..SIGNED
            },
            SignedRequest {
                timestamp: "+1614265330",
                ..SIGNED
            },
            SignedRequest {
                timestamp: "",
                ..SIGNED
            },
            SignedRequest {
                body: br#"{"test": 2432232315}"#,
                ..SIGNED
            },
            SignedRequest {
                signatures: "",
                ..SIGNED
            },
            SignedRequest {
                signatures: "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
                ..SIGNED
            },
            SignedRequest {
                signatures: "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
                ..SIGNED
            },
            SignedRequest {
                signatures: "v1,",
                ..SIGNED
            },
        ] {
            assert!(!key.is_authentic(&wrong, NOW), "{wrong:?}");
        }
        let other = WebhookKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx").unwrap();
        assert!(!other.is_authentic(&SIGNED, NOW));
        assert_eq!(format!("{key:?}"), "WebhookKey(***)");
    }

    #[test]
    fn a_key_is_what_the_standard_says() {
        for wrong in [
            "",
            "whsec_",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_MfKQ",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!",
        ] {
            assert_eq!(WebhookKey::parse(wrong), Err(WebhookKeyParseError), "{wrong}");
        }
        for (text, bytes) in [
            ("", Some(&b""[..])),
            ("Zg==", Some(b"f")),
            ("Zg", Some(b"f")),
            ("Zm8=", Some(b"fo")),
            ("Zm9v", Some(b"foo")),
            ("Zm9vYg==", Some(b"foob")),
            ("Zh==", None),
            ("Z", None),
            ("Zg=", None),
            ("Zm9v=", None),
            ("Zm 9", None),
        ] {
            assert_eq!(decode_base64(text.as_bytes()).as_deref(), bytes, "{text}");
        }
    }
}
