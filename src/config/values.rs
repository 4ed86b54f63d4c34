//! Parsers of values: durations, sizes, addresses, URLs, origins, host names, upstream names.

use std::{net::SocketAddr, str::FromStr, time::Duration};

use http::{
    Uri,
    uri::{Authority, Scheme},
};

use super::{file::TokenHashText, problem::Problem};
use crate::{
    auth::{TokenHash, TokenHashParseError},
    provider::{self, is_unambiguous},
    server::{AddressRange, AddressRangeParseError},
};

/// Longest timeout that may be configured: one day.
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Largest size that may be configured: 4 GiB, in bytes.
const SIZE_MAX: u64 = 4 << 30;
/// The largest memory of request bodies: 1 TiB.
const BODY_MEMORY_MAX: u64 = 1 << 40;
/// Maximum length of a name, in bytes.
const NAME_MAX: usize = 64;
/// Description of a valid name, for problems.
const LABEL_RULE: &str = "expected a name of lower-case letters, digits, `-`, `_` and `.`, at most 64 characters";

/// Longest retention time that may be configured: one year of 365.25 days, as `humantime` counts it.
const LONG_DURATION_MAX: Duration = Duration::from_secs(31_557_600);

/// Parses a duration of at least `min` and at most one day: `30s`, `1m 30s`, `250ms`.
pub(super) fn parse_duration(text: &str, min: Duration) -> Result<Duration, Problem> {
    parse_duration_within(text, min, DURATION_MAX)
}

/// Parses a duration of at least `min` and at most one year: `7d`.
pub(super) fn parse_long_duration(text: &str, min: Duration) -> Result<Duration, Problem> {
    parse_duration_within(text, min, LONG_DURATION_MAX)
}

fn parse_duration_within(text: &str, min: Duration, max: Duration) -> Result<Duration, Problem> {
    let bad = || Problem::of_value(format!("expected a duration, found {text:?}"));
    // A number without a unit has one likely meaning, so its hint names the exact fix.
    let hint = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("write \"{text}s\" for seconds")
    } else {
        "write it like \"30s\", \"250ms\" or \"1m 30s\"".to_owned()
    };
    let duration = humantime::parse_duration(text.trim()).map_err(|_| bad().with_hint(hint))?;
    if duration < min || duration > max {
        let range = format!(
            "from {} to {}",
            humantime::format_duration(min),
            humantime::format_duration(max)
        );
        return Err(Problem::of_value(format!(
            "expected a duration {range}, found {text:?}"
        )));
    }
    Ok(duration)
}

/// Parses the URL of a receiver of messages: https, or http on this machine. It may have a path and a query.
pub(super) fn parse_message_url(text: &str) -> Result<String, Problem> {
    let url: Option<Uri> = text.parse().ok();
    let is_safe = |url: &Uri| match url.scheme_str() {
        Some("https") => true,
        Some("http") => url.host().is_some_and(provider::is_loopback),
        _ => false,
    };
    let has_user = |url: &Uri| {
        url.authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
    };
    let url = url.filter(|url| is_safe(url) && !has_user(url) && url.host().is_some_and(|host| !host.is_empty()));
    // The text may contain a password, so it is not repeated.
    url.map(|url| url.to_string()).ok_or_else(|| {
        Problem::of_value("expected an https:// URL, or an http:// URL of this machine, without user and password")
    })
}

/// Parses a size from 1 byte to 4 GiB: `64MiB`, `500kB`, `1048576`. Returns bytes.
pub(super) fn parse_size(text: &str) -> Result<usize, Problem> {
    // Fails only on a machine with 32 bits.
    usize::try_from(parse_size_up_to(text, SIZE_MAX)?).map_err(|_| bad_size(text))
}

/// Parses the memory of all request bodies: a size up to 1024 GiB. `None` for `auto`.
pub(super) fn parse_body_memory(text: &str) -> Result<Option<u64>, Problem> {
    if text.trim() == "auto" {
        return Ok(None);
    }
    parse_size_up_to(text, BODY_MEMORY_MAX).map(Some)
}

fn parse_size_up_to(text: &str, max: u64) -> Result<u64, Problem> {
    let bad = || bad_size(text);
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at_checked(digits).ok_or_else(bad)?;
    let unit: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "kib" => 1 << 10,
        "mb" => 1_000_000,
        "mib" => 1 << 20,
        "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    let bytes = number.checked_mul(unit).filter(|bytes| (1..=max).contains(bytes));
    bytes.ok_or_else(|| {
        Problem::of_value(format!(
            "expected a size from 1B to {}GiB, found {trimmed:?}",
            max >> 30
        ))
    })
}

fn bad_size(text: &str) -> Problem {
    Problem::of_value(format!("expected a size, found {text:?}"))
        .with_hint("write it like \"64MiB\", \"500kB\" or \"4096B\"")
}

/// Parses an address and port. The only name is `localhost`, which means 127.0.0.1.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, Problem> {
    let text = text.trim();
    // Other names are rejected, since a name may have several addresses and a listener needs one.
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    SocketAddr::from_str(numeric.as_deref().unwrap_or(text)).map_err(|_| {
        let port = text.strip_prefix(':').unwrap_or(text);
        let hint = match (port.parse::<u16>(), text.parse::<std::net::IpAddr>()) {
            (Ok(port), _) => format!("write \"127.0.0.1:{port}\""),
            (_, Ok(ip)) => format!("write the port too: \"{}\"", SocketAddr::new(ip, 4747)),
            _ => "write it like \"127.0.0.1:4747\", \"0.0.0.0:4747\" or \"[::1]:4747\"".to_owned(),
        };
        Problem::of_value(format!("expected an address with a port, found {text:?}")).with_hint(hint)
    })
}

/// Parses the hash of a token. `printed` names the output of `antiphon config token` that contains the hash.
pub(super) fn parse_token_hash(text: &TokenHashText, printed: &str) -> Result<TokenHash, Problem> {
    text.0.parse().map_err(|error: TokenHashParseError| {
        let hint = format!("`antiphon config token NAME` makes a token and prints {printed}");
        Problem::of_value(error.to_string()).with_hint(hint)
    })
}

/// Parts of an upstream's URL.
#[derive(Debug)]
pub(super) struct UpstreamUrl {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    pub(super) base_path: String,
}

/// Parses an upstream's URL: scheme, host, optional port and path. No message repeats a possible password.
pub(super) fn parse_upstream_url(text: &str) -> Result<UpstreamUrl, Problem> {
    let text = text.trim();
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(Problem::of_value("expected a URL that begins with http:// or https://"));
    };
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => Scheme::HTTP,
        "https" => Scheme::HTTPS,
        other => {
            return Err(Problem::of_value(format!(
                "expected http:// or https://, found {other}://"
            )));
        }
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    // Checked before any message repeats the authority.
    if authority.contains('@') {
        return Err(Problem::of_value("the URL contains a user name or password")
            .with_hint("remove it: clients send their own credentials, which are passed on"));
    }
    if path.contains('#') {
        return Err(Problem::of_value("the URL has a fragment").with_hint("remove everything from `#`"));
    }
    if path.contains('?') {
        return Err(Problem::of_value("the URL has a query")
            .with_hint("remove everything from `?`: the client's own query is passed on"));
    }
    let base_path = path.trim_end_matches('/');
    // The client's path is appended to the base path, so a whole endpoint here would appear twice.
    for endpoint in provider::HISTORY_SUFFIXES {
        if let Some(base) = base_path.strip_suffix(endpoint) {
            return Err(
                Problem::of_value(format!("the URL names one endpoint, {endpoint}")).with_hint(format!(
                    "write the part in front of it: \"{scheme}://{authority}{base}\""
                )),
            );
        }
    }
    let parses = base_path.is_empty() || http::uri::PathAndQuery::from_str(base_path).is_ok();
    if !is_unambiguous(base_path) || !parses {
        return Err(Problem::of_value(
            "the URL's path has dot segments, leading double slashes or characters that need escaping",
        ));
    }
    let bad_host = || Problem::of_value(format!("expected a host and at most a port, found {authority:?}"));
    let authority = Authority::from_str(authority).map_err(|_| bad_host())?;
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    // `Authority` accepts an empty or too large port, and nothing can connect to port 0.
    let port_is_good = port.is_empty() || authority.port_u16().is_some_and(|port| port != 0);
    if authority.host().is_empty() || !port_is_good {
        return Err(bad_host());
    }
    Ok(UpstreamUrl {
        scheme,
        authority,
        base_path: base_path.to_owned(),
    })
}

/// Checks the name of an upstream, which is a path segment and a metric label.
pub(super) fn check_upstream_name(name: &str) -> Result<(), Problem> {
    if provider::RESERVED_NAMES.contains(&name) {
        return Err(Problem::of_value(format!(
            "{name:?} cannot name an upstream: paths without a prefix begin with it"
        ))
        .with_hint("choose another name"));
    }
    check_label(name)
}

/// Checks a name that is shown in logs and metrics.
pub(super) fn check_label(name: &str) -> Result<(), Problem> {
    if is_label(name) {
        return Ok(());
    }
    let flaw = Problem::of_value(format!("{LABEL_RULE}, found {name:?}"));
    let lower = name.to_ascii_lowercase();
    Err(if is_label(&lower) {
        flaw.with_hint(format!("write {lower:?}"))
    } else {
        flaw
    })
}

/// Checks the name of a client token. The error describes valid names.
pub fn check_client_name(name: &str) -> Result<(), String> {
    check_label(name).map_err(|flaw| flaw.message)
}

fn is_label(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.');
    let first = name.bytes().next();
    let begins_well = first.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    begins_well && name.len() <= NAME_MAX && name.bytes().all(allowed)
}

/// Parses an origin as browsers send it. Returns it in lower case.
pub(super) fn parse_origin(text: &str) -> Result<String, Problem> {
    let flaw = || Problem::of_value(format!("expected an origin, found {text:?}"));
    // Sandboxed pages and local files of any origin send `null`.
    if matches!(text, "*" | "null") {
        return Err(flaw().with_hint("name every origin: otherwise any web page could call the proxy"));
    }
    let host = text
        .split_once("://")
        .filter(|(scheme, _)| !scheme.is_empty())
        .map(|(_, host)| host);
    match host.map(Authority::from_str) {
        Some(Ok(host)) if !host.as_str().contains('@') => Ok(text.to_ascii_lowercase()),
        _ => Err(flaw().with_hint("write scheme, host and port only: \"https://app.example.com\"")),
    }
}

/// Parses an address, or a range of addresses.
pub(super) fn parse_address_range(text: &str) -> Result<AddressRange, Problem> {
    text.trim().parse().map_err(|error: AddressRangeParseError| {
        Problem::of_value(format!("{error}; found {text:?}")).with_hint("write it like \"10.0.0.0/8\" or \"10.1.2.3\"")
    })
}

/// Parses a host name without a port. Returns it in lower case.
pub(super) fn parse_host_name(text: &str) -> Result<String, Problem> {
    let flaw = || Problem::of_value(format!("expected a host name, found {text:?}"));
    if text.contains('*') {
        return Err(flaw().with_hint("name every host: otherwise any web page could call the proxy"));
    }
    match Authority::from_str(text) {
        // Equal to its own host means that it has neither a port nor a user name.
        Ok(host) if host.host() == text => Ok(text.to_ascii_lowercase()),
        _ => Err(flaw().with_hint("write the name only, without scheme, port and path: \"proxy.internal\"")),
    }
}
