//! Meanings of texts with their bounds: durations, sizes, addresses, URLs, origins, host names; and rules of names.

use std::{fmt::Display, net::SocketAddr, ops::RangeBounds, str::FromStr, time::Duration};

use http::{
    HeaderName, Uri,
    uri::{Authority, Scheme},
};

use super::written::Meaning;
use crate::{
    auth::{CertificateName, TokenHash, TokenHashParseError},
    config::problem::ConfigProblem,
    late::{INTENT_WINDOW_MAX, JsonPointer},
    provider::{self, is_unambiguous},
    server::{AddressRange, AddressRangeParseError},
    telemetry::LogSettings,
};

const MILLISECOND: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// One year of 365.25 days, as `humantime` counts it.
const YEAR: Duration = Duration::from_secs(31_557_600);
/// Largest size that may be configured: 4 GiB, in bytes.
const SIZE_MAX: u64 = 4 << 30;
/// The largest memory of request bodies: 1 TiB.
const BODY_MEMORY_MAX: u64 = 1 << 40;
/// Maximum length of a name, in bytes.
const NAME_MAX: usize = 64;
/// Description of a valid name, for problems.
const LABEL_RULE: &str = "expected a name of lower-case letters, digits, `-`, `_` and `.`, at most 64 characters";

/// Defines the meanings of texts: the type of the value, and the function that reads it.
macro_rules! meanings {
    ($($(#[$doc:meta])+ $name:ident: $value:ty = $parse:expr;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Meaning for $name {
            type Value = $value;

            fn parse_text(text: &str) -> Result<$value, ConfigProblem> {
                $parse(text)
            }
        }
    )+};
}

meanings! {
    /// Duration from a millisecond to a day.
    Timeout: Duration = |text| parse_duration(text, MILLISECOND, DAY);
    /// Duration of at most a day. Zero turns something off.
    Wait: Duration = |text| parse_duration(text, Duration::ZERO, DAY);
    /// Duration from a second to a day.
    Interval: Duration = |text| parse_duration(text, Duration::from_secs(1), DAY);
    /// Duration from a millisecond to a year, for which something is kept.
    Retention: Duration = |text| parse_duration(text, MILLISECOND, YEAR);
    /// Duration after a result in which an intent is not run again.
    IntentWindow: Duration = parse_intent_window;
    /// Size from 1 byte to 4 GiB, in bytes.
    Size: usize = parse_size;
    /// Memory of all request bodies: a size up to 1024 GiB. `None` for `auto`.
    BodyMemoryMax: Option<u64> = parse_body_memory;
    /// Address and port of a listener.
    Address: SocketAddr = parse_address;
    /// Address, or a range of addresses.
    ClientAddresses: AddressRange = parse_address_range;
    /// Origin as browsers send it, in lower case.
    Origin: String = parse_origin;
    /// Host name without a port, in lower case.
    HostName: String = parse_host_name;
    /// URL of an upstream.
    UpstreamAddress: UpstreamUrl = parse_upstream_url;
    /// URL of a receiver of messages: https, or http on this machine. It may have a path and a query.
    MessageUrl: String = parse_message_url;
    /// URL of a collector of traces.
    CollectorUrl: Uri = parse_collector_url;
    /// Hash of a token: `sha256:` and 64 hexadecimal digits.
    HashedToken: TokenHash = |text| parse_token_hash(text, "its hash");
    /// Hash of a client's token.
    HashedClientToken: TokenHash = |text| parse_token_hash(text, "this line");
    /// Name of a certificate: a DNS name, a URI or an email address.
    CertifiedName: CertificateName = parse_by_type;
    /// Place in the input of a tool, as JSON pointer.
    InputPointer: JsonPointer = parse_by_type;
    /// Name of a header.
    FieldName: HeaderName = parse_header_name;
    /// Level of log lines, or directives such as `antiphon=debug,warn`.
    LogDirectives: String = parse_log_directives;
    /// Word that is shown in logs and headers.
    PrintableWord: String = parse_word;
    /// Name of a model, or a prefix with `*` at its end.
    ModelPattern: String = parse_model_pattern;
    /// Name of an AWS region.
    AwsRegion: String = parse_region;
}

/// Parses the window of an intent: at most [`INTENT_WINDOW_MAX`].
fn parse_intent_window(text: &str) -> Result<Duration, ConfigProblem> {
    let window = parse_duration(text, Duration::ZERO, YEAR)?;
    if window > INTENT_WINDOW_MAX {
        let longest = humantime::format_duration(INTENT_WINDOW_MAX);
        let flaw = ConfigProblem::of_value(format!("is longer than {longest}"));
        return Err(flaw.with_hint(format!("write at most \"{longest}\"")));
    }
    Ok(window)
}

/// Parses a duration: `30s`, `1m 30s`, `250ms`.
fn parse_duration(text: &str, min: Duration, max: Duration) -> Result<Duration, ConfigProblem> {
    let bad = || ConfigProblem::of_value(format!("expected a duration, found {text:?}"));
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
        return Err(ConfigProblem::of_value(format!(
            "expected a duration {range}, found {text:?}"
        )));
    }
    Ok(duration)
}

/// Parses the URL of a receiver of messages.
fn parse_message_url(text: &str) -> Result<String, ConfigProblem> {
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
        ConfigProblem::of_value(
            "expected an https:// URL, or an http:// URL of this machine, without user and password",
        )
    })
}

/// Parses the URL of a collector.
fn parse_collector_url(text: &str) -> Result<Uri, ConfigProblem> {
    collector_url(text).ok_or_else(|| {
        ConfigProblem::of_value(
            "expected a URL that begins with http:// or https://, without a user name, query or fragment",
        )
        .with_hint("write it like \"http://127.0.0.1:4318\"")
    })
}

/// Default path at which a collector accepts traces.
pub const COLLECTOR_PATH: &str = "/v1/traces";

/// Returns the URL for exports. Adds [`COLLECTOR_PATH`] if there is not even a slash after the host.
pub fn collector_url(text: &str) -> Option<Uri> {
    let text = text.trim();
    let (_, rest) = text.split_once("://")?;
    let text = if rest.contains('/') {
        text.to_owned()
    } else {
        format!("{text}{COLLECTOR_PATH}")
    };
    let uri = Uri::from_str(&text).ok()?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority()?;
    // A password or a key in the URL would be printed by `config print`.
    let is_plain = !authority.as_str().contains('@') && uri.query().is_none() && !text.contains('#');
    (is_http && is_plain && !authority.host().is_empty()).then_some(uri)
}

/// Parses a size: `64MiB`, `500kB`, `1048576`.
fn parse_size(text: &str) -> Result<usize, ConfigProblem> {
    // Fails only on a machine with 32 bits.
    usize::try_from(parse_size_up_to(text, SIZE_MAX)?).map_err(|_| bad_size(text))
}

/// Parses the memory of all request bodies.
fn parse_body_memory(text: &str) -> Result<Option<u64>, ConfigProblem> {
    if text.trim() == "auto" {
        return Ok(None);
    }
    parse_size_up_to(text, BODY_MEMORY_MAX).map(Some)
}

fn parse_size_up_to(text: &str, max: u64) -> Result<u64, ConfigProblem> {
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
        ConfigProblem::of_value(format!(
            "expected a size from 1B to {}GiB, found {trimmed:?}",
            max >> 30
        ))
    })
}

fn bad_size(text: &str) -> ConfigProblem {
    ConfigProblem::of_value(format!("expected a size, found {text:?}"))
        .with_hint("write it like \"64MiB\", \"500kB\" or \"4096B\"")
}

/// Parses an address and port. The only name is `localhost`, which means 127.0.0.1.
fn parse_address(text: &str) -> Result<SocketAddr, ConfigProblem> {
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
        ConfigProblem::of_value(format!("expected an address with a port, found {text:?}")).with_hint(hint)
    })
}

/// Parses the hash of a token. `printed` names the output of `antiphon config token` that contains the hash.
fn parse_token_hash(text: &str, printed: &str) -> Result<TokenHash, ConfigProblem> {
    text.parse().map_err(|error: TokenHashParseError| {
        let hint = format!("`antiphon config token NAME` makes a token and prints {printed}");
        ConfigProblem::of_value(error.to_string()).with_hint(hint)
    })
}

/// Parts of an upstream's URL.
#[derive(Clone, Debug)]
pub struct UpstreamUrl {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host, and port if there is one.
    pub authority: Authority,
    /// Path in front of that of each request, without a slash at its end.
    pub base_path: String,
}

/// Parses an upstream's URL: scheme, host, optional port and path. No message repeats a possible password.
fn parse_upstream_url(text: &str) -> Result<UpstreamUrl, ConfigProblem> {
    let text = text.trim();
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(ConfigProblem::of_value(
            "expected a URL that begins with http:// or https://",
        ));
    };
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => Scheme::HTTP,
        "https" => Scheme::HTTPS,
        other => {
            return Err(ConfigProblem::of_value(format!(
                "expected http:// or https://, found {other}://"
            )));
        }
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    // Checked before any message repeats the authority.
    if authority.contains('@') {
        return Err(ConfigProblem::of_value("the URL contains a user name or password")
            .with_hint("remove it: clients send their own credentials, which are passed on"));
    }
    if path.contains('#') {
        return Err(ConfigProblem::of_value("the URL has a fragment").with_hint("remove everything from `#`"));
    }
    if path.contains('?') {
        return Err(ConfigProblem::of_value("the URL has a query")
            .with_hint("remove everything from `?`: the client's own query is passed on"));
    }
    let base_path = path.trim_end_matches('/');
    // The client's path is appended to the base path, so a whole endpoint here would appear twice.
    for endpoint in provider::HISTORY_SUFFIXES {
        if let Some(base) = base_path.strip_suffix(endpoint) {
            return Err(
                ConfigProblem::of_value(format!("the URL names one endpoint, {endpoint}")).with_hint(format!(
                    "write the part in front of it: \"{scheme}://{authority}{base}\""
                )),
            );
        }
    }
    let parses = base_path.is_empty() || http::uri::PathAndQuery::from_str(base_path).is_ok();
    if !is_unambiguous(base_path) || !parses {
        return Err(ConfigProblem::of_value(
            "the URL's path has dot segments, leading double slashes or characters that need escaping",
        ));
    }
    let bad_host = || ConfigProblem::of_value(format!("expected a host and at most a port, found {authority:?}"));
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
pub fn check_upstream_name(name: &str) -> Result<(), ConfigProblem> {
    if provider::RESERVED_NAMES.contains(&name) {
        return Err(ConfigProblem::of_value(format!(
            "{name:?} cannot name an upstream: paths without a prefix begin with it"
        ))
        .with_hint("choose another name"));
    }
    check_label(name)
}

/// Checks a name that is shown in logs and metrics.
pub fn check_label(name: &str) -> Result<(), ConfigProblem> {
    if is_label(name) {
        return Ok(());
    }
    let flaw = ConfigProblem::of_value(format!("{LABEL_RULE}, found {name:?}"));
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

/// Parses an origin.
fn parse_origin(text: &str) -> Result<String, ConfigProblem> {
    let flaw = || ConfigProblem::of_value(format!("expected an origin, found {text:?}"));
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

/// Parses a host name.
fn parse_host_name(text: &str) -> Result<String, ConfigProblem> {
    let flaw = || ConfigProblem::of_value(format!("expected a host name, found {text:?}"));
    if text.contains('*') {
        return Err(flaw().with_hint("name every host: otherwise any web page could call the proxy"));
    }
    match Authority::from_str(text) {
        // Equal to its own host means that it has neither a port nor a user name.
        Ok(host) if host.host() == text => Ok(text.to_ascii_lowercase()),
        _ => Err(flaw().with_hint("write the name only, without scheme, port and path: \"proxy.internal\"")),
    }
}

/// Parses an address, or a range of addresses.
fn parse_address_range(text: &str) -> Result<AddressRange, ConfigProblem> {
    text.trim().parse().map_err(|error: AddressRangeParseError| {
        ConfigProblem::of_value(format!("{error}; found {text:?}"))
            .with_hint("write it like \"10.0.0.0/8\" or \"10.1.2.3\"")
    })
}

/// Parses a text as its type does.
fn parse_by_type<T: FromStr<Err: Display>>(text: &str) -> Result<T, ConfigProblem> {
    text.parse()
        .map_err(|error: T::Err| ConfigProblem::of_value(error.to_string()))
}

/// Parses the name of a header.
fn parse_header_name(text: &str) -> Result<HeaderName, ConfigProblem> {
    text.parse()
        .map_err(|_| ConfigProblem::of_value("expected the name of a header").with_hint("write it like \"x-user\""))
}

/// Checks a level of log lines, or directives.
fn parse_log_directives(text: &str) -> Result<String, ConfigProblem> {
    // After a reload a bad level could no longer be refused.
    let checked = LogSettings::check_level(text);
    checked.map_err(|(message, hint)| ConfigProblem::of_value(message).with_hint(hint))?;
    Ok(text.to_owned())
}

/// Checks a word that is shown in logs and headers.
fn parse_word(text: &str) -> Result<String, ConfigProblem> {
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    let flaw = || ConfigProblem::of_value("expected a word of printable characters without spaces");
    is_word.then(|| text.to_owned()).ok_or_else(flaw)
}

/// Checks the name of a model, or a prefix.
fn parse_model_pattern(text: &str) -> Result<String, ConfigProblem> {
    // A lone `*` at the end is the only pattern that the match supports.
    let has_one_star = !text.trim_end_matches('*').contains('*') && !text.ends_with("**");
    let flaw = || ConfigProblem::of_value("expected the name of a model, or a prefix with one `*` at the end");
    parse_word(text).ok().filter(|_| has_one_star).ok_or_else(flaw)
}

/// Checks the name of an AWS region.
fn parse_region(text: &str) -> Result<String, ConfigProblem> {
    // It becomes part of the signature's scope, which slashes and spaces would break.
    let is_region = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let flaw = || ConfigProblem::of_value("expected the name of a region, such as \"us-east-1\"");
    is_region.then(|| text.to_owned()).ok_or_else(flaw)
}

/// Checks the bounds of a number. A number that is not set has none.
pub fn check_number<T: PartialOrd>(
    number: impl Into<Option<T>>,
    bounds: impl RangeBounds<T>,
    expected: &str,
    hint: Option<&str>,
) -> Result<(), ConfigProblem> {
    if number.into().is_none_or(|number| bounds.contains(&number)) {
        return Ok(());
    }
    let flaw = ConfigProblem::of_value(format!("expected {expected}"));
    Err(match hint {
        Some(hint) => flaw.with_hint(hint),
        None => flaw,
    })
}
