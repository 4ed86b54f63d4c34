//! `[traces]` and the variables of OpenTelemetry as settings.
//!
//! Those variables are often set for other programs too. As their specification wants it, one that cannot be used is
//! passed over, and told.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use http::Uri;

use super::{
    Lookup,
    flaw::Flaw,
    lowering::Lowering,
    variables::{
        OTEL_DISABLED, OTEL_ENDPOINT, OTEL_EXPORTER, OTEL_HEADERS, OTEL_PROTOCOL, OTEL_RESOURCE, OTEL_SAMPLER,
        OTEL_SAMPLER_ARG, OTEL_SERVICE_NAME, OTEL_TIMEOUT, OTEL_TRACES_ENDPOINT, OTEL_TRACES_HEADERS,
        OTEL_TRACES_PROTOCOL, OTEL_TRACES_TIMEOUT,
    },
};
use crate::telemetry::{ExportHeaders, TraceSampling, TraceSettings};

const ENDPOINT: &str = "traces.endpoint";
/// Where a collector takes traces.
const PATH: &str = "/v1/traces";
/// The only way in which traces are sent.
const PROTOCOL: &str = "http/protobuf";
/// Names and values that are taken from one variable.
const PAIRS_MAX: usize = 128;

/// What the variables say, as far as it can be used.
#[derive(Debug, Default)]
pub(super) struct OtelEnvironment {
    disabled: bool,
    /// All of the URL, and the variable that gave it.
    endpoint: Option<(String, &'static str)>,
    headers: Option<BTreeMap<String, String>>,
    timeout: Option<Duration>,
    service: Option<String>,
    resource: BTreeMap<String, String>,
    sampling: Option<TraceSampling>,
    /// Variables that say nothing that can be used.
    pub(super) unusable: Vec<&'static str>,
}

impl OtelEnvironment {
    pub(super) fn of(variable: &Lookup<'_>) -> Self {
        let mut this = Self::default();
        let disabled = variable(OTEL_DISABLED).is_some_and(|text| text.trim().eq_ignore_ascii_case("true"));
        let exporter = this.usable(variable, OTEL_EXPORTER, |text| match text {
            "none" => Some(false),
            "otlp" => Some(true),
            _ => None,
        });
        this.disabled = disabled || exporter == Some(false);
        // The variable for traces alone goes before the one for everything.
        let own = this.usable(variable, OTEL_TRACES_ENDPOINT, |text| {
            let has_path = text.split_once("://").is_none_or(|(_, rest)| rest.contains('/'));
            // Asked as it stands, if need be at the root.
            let slash = if has_path { "" } else { "/" };
            endpoint(&format!("{text}{slash}")).map(|uri| uri.to_string())
        });
        let common = this.usable(variable, OTEL_ENDPOINT, |text| {
            let text = format!("{}{PATH}", text.trim_end_matches('/'));
            endpoint(&text).map(|uri| uri.to_string())
        });
        let own = own.map(|url| (url, OTEL_TRACES_ENDPOINT));
        this.endpoint = own.or_else(|| common.map(|url| (url, OTEL_ENDPOINT)));
        let protocol = |text: &str| (text == PROTOCOL).then_some(());
        let _ = this.either(variable, OTEL_TRACES_PROTOCOL, OTEL_PROTOCOL, protocol);
        this.headers = this.either(variable, OTEL_TRACES_HEADERS, OTEL_HEADERS, headers);
        this.timeout = this.either(variable, OTEL_TRACES_TIMEOUT, OTEL_TIMEOUT, |text| {
            let millis = text.parse().ok().filter(|millis| *millis > 0);
            millis.map(Duration::from_millis)
        });
        this.resource = this.usable(variable, OTEL_RESOURCE, attributes).unwrap_or_default();
        this.service = variable(OTEL_SERVICE_NAME);
        this.sampling = this.sampling(variable);
        this
    }

    /// What a variable says, if it can be used.
    fn usable<T>(
        &mut self,
        variable: &Lookup<'_>,
        name: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = variable(name)?;
        let value = read(text.trim());
        if value.is_none() {
            self.unusable.push(name);
        }
        value
    }

    /// What the variable for traces says, else the one for everything.
    fn either<T>(
        &mut self,
        variable: &Lookup<'_>,
        own: &'static str,
        common: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let own = self.usable(variable, own, &read);
        let common = self.usable(variable, common, &read);
        own.or(common)
    }

    fn sampling(&mut self, variable: &Lookup<'_>) -> Option<TraceSampling> {
        let share = self.usable(variable, OTEL_SAMPLER_ARG, |text| {
            let share = text.parse().ok();
            share.filter(|share| (0.0..=1.0).contains(share))
        });
        self.usable(variable, OTEL_SAMPLER, |text| {
            let (follows_parent, name) = match text.strip_prefix("parentbased_") {
                Some(name) => (true, name),
                None => (false, text),
            };
            let share = match name {
                "always_on" => 1.0,
                "always_off" => 0.0,
                "traceidratio" => share.unwrap_or(1.0),
                _ => return None,
            };
            Some(TraceSampling { follows_parent, share })
        })
    }
}

/// Puts the variables over the file.
pub(super) fn overlay_traces(lowering: &mut Lowering, otel: &OtelEnvironment) {
    if let Some((url, name)) = &otel.endpoint {
        lowering.file.traces.endpoint = Some(url.clone());
        lowering.origins.insert(ENDPOINT.to_owned(), (*name).to_owned());
    }
}

pub(super) fn lower_traces(lowering: &mut Lowering, otel: &OtelEnvironment) -> Option<TraceSettings> {
    let text = lowering.file.traces.endpoint.clone()?;
    let flaw = || {
        Flaw::new("expected a URL that begins with http:// or https://, without a user name, query or fragment")
            .hint("write it like \"http://127.0.0.1:4318\"")
    };
    let endpoint = lowering.take(ENDPOINT, endpoint(&text).ok_or_else(flaw))?;
    if otel.disabled {
        return None;
    }
    let mut settings = TraceSettings::to(endpoint);
    settings.propagates = lowering.file.traces.propagate;
    settings.timeout = otel.timeout.unwrap_or(settings.timeout);
    settings.sampling = otel.sampling.unwrap_or_default();
    settings.headers = ExportHeaders(otel.headers.clone().unwrap_or_default());
    settings.resource.extend(otel.resource.clone());
    if let Some(service) = &otel.service {
        settings.resource.insert("service.name".to_owned(), service.clone());
    }
    Some(settings)
}

/// Where traces are posted to. Without so much as a slash behind the host that is [`PATH`].
fn endpoint(text: &str) -> Option<Uri> {
    let text = text.trim();
    let (_, rest) = text.split_once("://")?;
    let text = if rest.contains('/') {
        text.to_owned()
    } else {
        format!("{text}{PATH}")
    };
    let uri = Uri::from_str(&text).ok()?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority()?;
    let is_plain = !authority.as_str().contains('@') && uri.query().is_none() && !text.contains('#');
    (is_http && is_plain && !authority.host().is_empty()).then_some(uri)
}

/// Names of headers and their values, which stay percent-encoded.
fn headers(text: &str) -> Option<BTreeMap<String, String>> {
    let pairs = pairs(text)?;
    let are_good = pairs
        .iter()
        .all(|(name, _)| http::HeaderName::from_bytes(name.as_bytes()).is_ok());
    are_good.then_some(pairs)
}

fn attributes(text: &str) -> Option<BTreeMap<String, String>> {
    let decoded = pairs(text)?
        .into_iter()
        .map(|(name, value)| Some((name, decoded(&value)?)));
    decoded.collect()
}

/// `NAME=VALUE,NAME=VALUE`.
fn pairs(text: &str) -> Option<BTreeMap<String, String>> {
    let pairs: Option<BTreeMap<String, String>> = text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let name = name.trim();
            (!name.is_empty()).then(|| (name.to_owned(), value.trim().to_owned()))
        })
        .collect();
    pairs.filter(|pairs| pairs.len() <= PAIRS_MAX)
}

/// A percent-encoded value.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
