//! Readers of what a source supplies: tokens of cloud command lines, and keys of AWS.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::{SourceFailure, SuppliedCredential, SuppliedKeys};
use crate::auth::{Credential, Secret};

/// Names of a token in JSON.
const TOKENS: [&str; 3] = ["access_token", "accessToken", "token"];
/// Names of an object around token and expiry: Kubernetes, `gcloud config config-helper`, Vault.
const WRAPPERS: [&str; 3] = ["status", "credential", "data"];
/// Names of an expiry in JSON, most exact first. Azure's `expiresOn` is a local time, `expires_on` is not.
const EXPIRIES: [&str; 9] = [
    "expires_on",
    "expires_at",
    "expires_at_seconds",
    "expiresAt",
    "expirationTimestamp",
    "expiration",
    "expiry",
    "token_expiry",
    "expiresOn",
];
/// Words that programs print for a token which they do not have.
const NO_TOKENS: [&str; 4] = ["none", "undefined", "nil", "(unset)"];
/// The date that Go programs print for a token without an expiry: the zero of their type for times.
const GO_ZERO_DATE: &str = "0001-01-01T00:00:00Z";
/// Numbers above this are milliseconds since 1970, not seconds.
const SECONDS_MAX: u64 = 100_000_000_000;

/// Parses the output of a token command at `now`, the time since 1970.
///
/// It is the token alone on one line, or JSON: an object with the token and its expiry, such as an `ExecCredential` of
/// Kubernetes.
pub fn parse_token_output(output: &[u8], now: Duration) -> Result<SuppliedCredential, SourceFailure> {
    let text = std::str::from_utf8(output)
        .map_err(|_| SourceFailure::Unreadable)?
        .trim();
    let Ok(json) = serde_json::from_str::<Value>(text) else {
        return Ok(SuppliedCredential {
            credential: Credential::Bearer(plain_token(text)?),
            expires_at: None,
        });
    };
    // Azure prints the token in quotes if it was asked for that field alone.
    let (token, expires_at) = if let Some(token) = json.as_str() {
        (Some(token), None)
    } else if !json.is_object() {
        // Such as the `null` of `jq -r` for a field that is missing.
        return Err(SourceFailure::Unreadable);
    } else {
        let token_in = |object: &Value| {
            TOKENS
                .iter()
                .any(|name| object.get(*name).is_some_and(Value::is_string))
        };
        // A wrapper without a token is something else.
        let inner = |name: &&str| json.get(*name).filter(|inner| token_in(inner));
        let object = WRAPPERS.iter().find_map(inner).unwrap_or(&json);
        let token = TOKENS.iter().find_map(|name| object.get(*name)?.as_str());
        (token, expiry_of(object, now)?)
    };
    let credential = Credential::Bearer(readable_secret(token.ok_or(SourceFailure::Unreadable)?)?);
    check_expiry(expires_at, now)?;
    Ok(SuppliedCredential { credential, expires_at })
}

/// Parses the output of an AWS `credential_process` at `now`, the time since 1970.
pub fn parse_process_output(output: &[u8], now: Duration) -> Result<SuppliedKeys, SourceFailure> {
    let json: Value = serde_json::from_slice(output).map_err(|_| SourceFailure::Unreadable)?;
    // Another version may mean something else by the same names.
    if json.get("Version").and_then(Value::as_u64) != Some(1) {
        return Err(SourceFailure::Unreadable);
    }
    aws_keys(&json, "SessionToken", now)
}

/// Parses the answer of the credentials endpoint of a container at `now`, the time since 1970.
pub fn parse_container_answer(body: &[u8], now: Duration) -> Result<SuppliedKeys, SourceFailure> {
    let json: Value = serde_json::from_slice(body).map_err(|_| SourceFailure::Unreadable)?;
    aws_keys(&json, "Token", now)
}

/// Reads the keys that both of the AWS formats have.
fn aws_keys(json: &Value, session_token: &str, now: Duration) -> Result<SuppliedKeys, SourceFailure> {
    let field = |name: &str| json.get(name).filter(|value| !value.is_null());
    let secret = |name: &str| {
        let text = field(name).and_then(Value::as_str);
        readable_secret(text.ok_or(SourceFailure::Unreadable)?)
    };
    let expires_at = match field("Expiration") {
        // A date that cannot be read is no reason to use keys for ever.
        Some(date) => Some(date.as_str().and_then(parse_date).ok_or(SourceFailure::Unreadable)?),
        None => None,
    };
    check_expiry(expires_at, now)?;
    Ok(SuppliedKeys {
        access_key_id: secret("AccessKeyId")?,
        secret_access_key: secret("SecretAccessKey")?,
        session_token: field(session_token).map(|_| secret(session_token)).transpose()?,
        expires_at,
    })
}

/// Returns a token that stands alone. Broken JSON, a page of HTML and a word for "no token" are none.
fn plain_token(text: &str) -> Result<Secret, SourceFailure> {
    let is_none = NO_TOKENS.iter().any(|word| word.eq_ignore_ascii_case(text));
    if is_none || text.starts_with(['{', '"', '[', '<']) {
        return Err(SourceFailure::Unreadable);
    }
    readable_secret(text)
}

/// Returns a secret that a header can contain.
fn readable_secret(text: &str) -> Result<Secret, SourceFailure> {
    Secret::check_text(text.to_owned()).map_err(|_| SourceFailure::Unreadable)
}

/// Refuses a credential that has expired.
fn check_expiry(expires_at: Option<Duration>, now: Duration) -> Result<(), SourceFailure> {
    match expires_at {
        Some(end) if end <= now => Err(SourceFailure::Expired),
        _ => Ok(()),
    }
}

/// Returns the expiry of a token; `None` if the object names none that is exact.
///
/// An expiry that cannot be read is no reason to use a token for the default time.
fn expiry_of(object: &Value, now: Duration) -> Result<Option<Duration>, SourceFailure> {
    let stated = |name: &str| {
        let stated = object.get(name).filter(|value| !value.is_null());
        stated.filter(|value| value.as_str().map(str::trim) != Some(GO_ZERO_DATE))
    };
    for value in EXPIRIES.iter().filter_map(|name| stated(name)) {
        if let Some(end) = expiry_date(value) {
            return Ok(Some(end));
        }
        // Another name may have the exact time.
        if !is_local_date(value) {
            return Err(expiry_failure(value));
        }
    }
    let Some(value) = stated("expires_in") else {
        return Ok(None);
    };
    let seconds = whole_number(value).ok_or_else(|| expiry_failure(value))?;
    Ok(Some(now.saturating_add(Duration::from_secs(seconds))))
}

/// Returns `true` for a date without an offset, which is not exact.
fn is_local_date(value: &Value) -> bool {
    let date = value.as_str().map(|text| humantime::parse_rfc3339_weak(text.trim()));
    matches!(date, Some(Ok(_)))
}

/// Returns the failure for an expiry that is no time from 1970 on.
fn expiry_failure(value: &Value) -> SourceFailure {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    if number.is_some_and(|number| number < 0.0) {
        SourceFailure::Expired
    } else {
        SourceFailure::Unreadable
    }
}

/// Returns a date that is written as a number or as RFC 3339.
fn expiry_date(value: &Value) -> Option<Duration> {
    match whole_number(value) {
        Some(millis) if millis > SECONDS_MAX => Some(Duration::from_millis(millis)),
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => parse_date(value.as_str()?),
    }
}

/// Returns a number that is written as one, or as text. Fractions are cut off.
fn whole_number(value: &Value) -> Option<u64> {
    let fraction = || {
        Duration::try_from_secs_f64(value.as_f64()?)
            .ok()
            .map(|time| time.as_secs())
    };
    value
        .as_u64()
        .or_else(fraction)
        .or_else(|| value.as_str()?.trim().parse().ok())
}

/// Parses an RFC 3339 date with any offset, as time since 1970. A date without an offset is not exact.
fn parse_date(text: &str) -> Option<Duration> {
    let text = text.trim().to_ascii_uppercase();
    let (local, offset) = if let Some(local) = text.strip_suffix('Z') {
        (local, None)
    } else {
        let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
        (local, Some(offset))
    };
    let local = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
    let local = local.duration_since(UNIX_EPOCH).ok()?;
    let Some(offset) = offset else { return Some(local) };
    let (sign, time) = offset.split_at_checked(1)?;
    let (hours, minutes) = time.split_once(':')?;
    let offset = Duration::from_secs(hours.parse::<u64>().ok()? * 3600 + minutes.parse::<u64>().ok()? * 60);
    match sign {
        "+" => local.checked_sub(offset),
        "-" => local.checked_add(offset),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01T00:00:00Z.
    const NOW: Duration = Duration::from_secs(1_767_225_600);

    /// Returns the seconds from [`NOW`] to the end of a token; `None` if it has none.
    fn life_of(output: &str) -> Result<Option<u64>, SourceFailure> {
        let read = parse_token_output(output.as_bytes(), NOW);
        read.map(|found| found.expires_at.map(|end| end.saturating_sub(NOW).as_secs()))
    }

    #[test]
    fn every_shape_of_a_token_is_read() {
        let hour = Some(3600);
        for (output, wanted) in [
            ("ya29.a0\n", None),
            ("  eyJ.x.y \r\n", None),
            ("\"eyJ.x.y\"\n", None),
            (r#"{"access_token":"t","expires_in":3600,"token_type":"Bearer"}"#, hour),
            (r#"{"access_token":"t","expires_in":"3600"}"#, hour),
            (r#"{"access_token":"t","expires_in":3600.9}"#, hour),
            (r#"{"token":"t"}"#, None),
            (
                r#"{"accessToken":"t","expiresOn":"2026-01-01 05:00:00.000000","expires_on":1767229200}"#,
                hour,
            ),
            (r#"{"accessToken":"t","expiresOn":"2026-01-01 05:00:00.000000"}"#, None),
            (r#"{"accessToken":"t","expiresOn":"2026-01-01T01:00:00+00:00"}"#, hour),
            (r#"{"token":"t","expiry":"2026-01-01T01:00:00Z"}"#, hour),
            (r#"{"token":"t","expiry":"2026-01-01T01:00:00.999999999z"}"#, hour),
            (r#"{"token":"t","expiration":"2026-01-01T03:00:00+02:00"}"#, hour),
            (r#"{"token":"t","expires_at":"2025-12-31T19:30:00-05:30"}"#, hour),
            (r#"{"token":"t","expires_at":1767229200}"#, hour),
            (r#"{"token":"t","expires_at":"1767229200"}"#, hour),
            (r#"{"token":"t","expiresAt":1767229200000}"#, hour),
            (
                r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t","expirationTimestamp":"2026-01-01T01:00:00Z"}}"#,
                hour,
            ),
            (
                r#"{"credential":{"access_token":"t","token_expiry":"2026-01-01T01:00:00Z"}}"#,
                hour,
            ),
            (r#"{"data":{"token":"t","expires_at_seconds":1767229200}}"#, hour),
            (
                r#"{"token":"t","expires_in":18446744073709551615}"#,
                Some(u64::MAX - NOW.as_secs()),
            ),
            (r#"{"token":"t","expires_at":null,"expires_in":3600}"#, hour),
            (r#"{"access_token":"t","expiry":"0001-01-01T00:00:00Z"}"#, None),
            (
                r#"{"access_token":"t","expiry":"0001-01-01T00:00:00Z","expires_in":3600}"#,
                hour,
            ),
            (
                r#"{"accessToken":"t","expiresOn":"2026-01-01 05:00:00.000000","expires_in":3600}"#,
                hour,
            ),
        ] {
            assert_eq!(life_of(output), Ok(wanted), "{output}");
        }
    }

    #[test]
    fn what_is_no_token_or_has_no_usable_end_is_a_failure() {
        for (output, failure) in [
            (
                r#"{"kind":"ExecCredential","status":{"clientCertificateData":"x"}}"#,
                SourceFailure::Unreadable,
            ),
            (r#"{"token":"t","expires_at":1767225600}"#, SourceFailure::Expired),
            (r#"{"token":"t","expires_in":0}"#, SourceFailure::Expired),
            (r#"{"token":"t","expires_at":0}"#, SourceFailure::Expired),
            (
                r#"{"token":"t","expiry":"0001-01-01T00:00:01Z"}"#,
                SourceFailure::Unreadable,
            ),
            (r#"{"token":"t","expires_in":-5}"#, SourceFailure::Expired),
            (r#"{"token":"t","expires_in":"-5"}"#, SourceFailure::Expired),
            (r#"{"token":"t","expires_at":-5.5}"#, SourceFailure::Expired),
            (r#"{"token":"t","expires_in":"soon"}"#, SourceFailure::Unreadable),
            (r#"{"token":"t","expires_in":1e99}"#, SourceFailure::Unreadable),
            (r#"{"token":"t","expires_at":"yesterday"}"#, SourceFailure::Unreadable),
            (r#"{"token":"t","expires_at":{"seconds":5}}"#, SourceFailure::Unreadable),
            (
                r#"{"token":"t","expires_at":"yesterday","expires_in":60}"#,
                SourceFailure::Unreadable,
            ),
            ("null", SourceFailure::Unreadable),
            ("true", SourceFailure::Unreadable),
            ("12345", SourceFailure::Unreadable),
            (r#"["x"]"#, SourceFailure::Unreadable),
            ("[x]", SourceFailure::Unreadable),
            ("<html></html>", SourceFailure::Unreadable),
            ("None", SourceFailure::Unreadable),
            ("undefined", SourceFailure::Unreadable),
            (r#"{"token":""}"#, SourceFailure::Unreadable),
            (r#"{"token":7}"#, SourceFailure::Unreadable),
            (r#"{"token":"a b"}"#, SourceFailure::Unreadable),
            (r#"{"token":"#, SourceFailure::Unreadable),
            ("{}", SourceFailure::Unreadable),
            ("", SourceFailure::Unreadable),
            ("\n", SourceFailure::Unreadable),
            ("one\ntwo\n", SourceFailure::Unreadable),
            ("ERROR: (gcloud) not logged in", SourceFailure::Unreadable),
        ] {
            assert_eq!(life_of(output), Err(failure), "{output}");
        }
        assert_eq!(parse_token_output(b"\xff\xfe", NOW), Err(SourceFailure::Unreadable));
    }

    #[test]
    fn a_token_is_taken_from_its_place() {
        for output in [
            "canary\n",
            "\"canary\"",
            r#"{"token":"canary"}"#,
            r#"{"status":{"token":"canary"}}"#,
        ] {
            let read = parse_token_output(output.as_bytes(), NOW).unwrap();
            assert_eq!(read.credential, Credential::Bearer(Secret::new("canary".to_owned())));
            assert!(!format!("{read:?}").contains("canary"));
        }
    }

    #[test]
    fn both_formats_of_aws_are_read() {
        let keys = |rest: &str| format!(r#"{{"AccessKeyId":"id","SecretAccessKey":"k/+="{rest}}}"#);
        let dated = r#","Version":1,"SessionToken":"s","Token":"s","Expiration":"2026-01-01T01:00:00Z""#;
        for parse in [parse_process_output, parse_container_answer] {
            let read = parse(keys(dated).as_bytes(), NOW).unwrap();
            assert_eq!(read.session_token, Some(Secret::new("s".to_owned())));
            assert_eq!(read.expires_at, Some(NOW + Duration::from_secs(3600)));
            let lasting = parse(keys(r#","Version":1,"Expiration":null"#).as_bytes(), NOW).unwrap();
            assert_eq!((lasting.session_token, lasting.expires_at), (None, None));
            for (rest, failure) in [
                (
                    r#","Version":1,"Expiration":"2025-01-01T01:00:00Z""#,
                    SourceFailure::Expired,
                ),
                (r#","Version":1,"Expiration":"soon""#, SourceFailure::Unreadable),
                (
                    r#","Version":1,"SessionToken":"","Token":"""#,
                    SourceFailure::Unreadable,
                ),
            ] {
                assert_eq!(parse(keys(rest).as_bytes(), NOW), Err(failure), "{rest}");
            }
            assert_eq!(
                parse(br#"{"Version":1,"AccessKeyId":"id"}"#, NOW),
                Err(SourceFailure::Unreadable)
            );
            assert_eq!(parse(b"[]", NOW), Err(SourceFailure::Unreadable));
        }
        assert_eq!(
            parse_process_output(keys("").as_bytes(), NOW),
            Err(SourceFailure::Unreadable)
        );
        assert_eq!(
            parse_process_output(keys(r#","Version":2"#).as_bytes(), NOW),
            Err(SourceFailure::Unreadable)
        );
        assert!(parse_container_answer(keys("").as_bytes(), NOW).is_ok());
    }
}
