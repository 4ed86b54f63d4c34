//! Converts `[traces]` and the variables of OpenTelemetry to settings.
//!
//! These variables are often set for other programs too. As their specification demands, a variable that cannot be used
//! is ignored with a warning.

use std::{collections::BTreeMap, time::Duration};

use super::{
    VariableLookup,
    file::{
        TracesSection, Written,
        values::{COLLECTOR_PATH, collector_url},
    },
    lowering::Lowering,
    variables::{
        OTEL_DISABLED, OTEL_ENDPOINT, OTEL_EXPORTER, OTEL_HEADERS, OTEL_PROTOCOL, OTEL_RESOURCE, OTEL_SAMPLER,
        OTEL_SAMPLER_ARG, OTEL_SERVICE_NAME, OTEL_TIMEOUT, OTEL_TRACES_ENDPOINT, OTEL_TRACES_HEADERS,
        OTEL_TRACES_PROTOCOL, OTEL_TRACES_TIMEOUT,
    },
};
use crate::telemetry::{ExportHeaders, TraceSampling, TraceSettings};

const ENDPOINT: &str = "traces.endpoint";
/// The only supported protocol of exports.
const PROTOCOL: &str = "http/protobuf";
/// Maximum number of pairs in one variable. A variable with more is unusable.
const PAIRS_MAX: usize = 128;

/// Usable values of the OpenTelemetry variables.
#[derive(Debug, Default)]
pub(super) struct OtelEnvironment {
    disabled: bool,
    /// Complete URL, and the variable that set it.
    endpoint: Option<(String, &'static str)>,
    headers: Option<BTreeMap<String, String>>,
    timeout: Option<Duration>,
    service: Option<String>,
    resource: BTreeMap<String, String>,
    sampling: Option<TraceSampling>,
    /// Variables with values that cannot be used.
    pub(super) unusable: Vec<&'static str>,
}

impl OtelEnvironment {
    /// Reads all variables. Notes those with unusable values.
    pub(super) fn from_variables(variable: &VariableLookup<'_>) -> Self {
        let mut this = Self::default();
        let disabled = variable(OTEL_DISABLED).is_some_and(|text| text.trim().eq_ignore_ascii_case("true"));
        let exporter = this.read_variable(variable, OTEL_EXPORTER, |text| match text {
            "none" => Some(false),
            "otlp" => Some(true),
            _ => None,
        });
        this.disabled = disabled || exporter == Some(false);
        // By the specification the variable for traces overrides the one for all signals.
        let own = this.read_variable(variable, OTEL_TRACES_ENDPOINT, |text| {
            let has_path = text.split_once("://").is_none_or(|(_, rest)| rest.contains('/'));
            // By the specification this URL is used as it is, so `/v1/traces` is not added.
            let slash = if has_path { "" } else { "/" };
            collector_url(&format!("{text}{slash}")).map(|uri| uri.to_string())
        });
        // Both variables are read even if one is enough, so that each unusable value is reported.
        let common = this.read_variable(variable, OTEL_ENDPOINT, |text| {
            let text = format!("{}{COLLECTOR_PATH}", text.trim_end_matches('/'));
            collector_url(&text).map(|uri| uri.to_string())
        });
        let own = own.map(|url| (url, OTEL_TRACES_ENDPOINT));
        this.endpoint = own.or_else(|| common.map(|url| (url, OTEL_ENDPOINT)));
        let protocol = |text: &str| (text == PROTOCOL).then_some(());
        // Nothing depends on the value: another protocol is only reported as unusable.
        let _ = this.read_either(variable, OTEL_TRACES_PROTOCOL, OTEL_PROTOCOL, protocol);
        this.headers = this.read_either(variable, OTEL_TRACES_HEADERS, OTEL_HEADERS, parse_headers);
        this.timeout = this.read_either(variable, OTEL_TRACES_TIMEOUT, OTEL_TIMEOUT, |text| {
            // Zero would let every export fail.
            let millis = text.parse().ok().filter(|millis| *millis > 0);
            millis.map(Duration::from_millis)
        });
        this.resource = this
            .read_variable(variable, OTEL_RESOURCE, parse_attributes)
            .unwrap_or_default();
        this.service = variable(OTEL_SERVICE_NAME);
        this.sampling = this.read_sampling(variable);
        this
    }

    /// Reads a variable. Notes it as unusable if `read` returns `None`.
    fn read_variable<T>(
        &mut self,
        variable: &VariableLookup<'_>,
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

    /// Reads the variable for traces, else the one for all signals.
    fn read_either<T>(
        &mut self,
        variable: &VariableLookup<'_>,
        own: &'static str,
        common: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let own = self.read_variable(variable, own, &read);
        let common = self.read_variable(variable, common, &read);
        own.or(common)
    }

    /// Reads the sampler and its share.
    ///
    /// Only `always_on`, `always_off`, `traceidratio` and their `parentbased_` forms are usable.
    fn read_sampling(&mut self, variable: &VariableLookup<'_>) -> Option<TraceSampling> {
        let share = self.read_variable(variable, OTEL_SAMPLER_ARG, |text| {
            let share = text.parse().ok();
            share.filter(|share| (0.0..=1.0).contains(share))
        });
        self.read_variable(variable, OTEL_SAMPLER, |text| {
            let (follows_parent, name) = match text.strip_prefix("parentbased_") {
                Some(name) => (true, name),
                None => (false, text),
            };
            let share = match name {
                "always_on" => 1.0,
                "always_off" => 0.0,
                // By the specification the share defaults to all traces.
                "traceidratio" => share.unwrap_or(1.0),
                _ => return None,
            };
            Some(TraceSampling { follows_parent, share })
        })
    }
}

/// Overrides the file's endpoint with that of the variables.
pub(super) fn overlay_traces(lowering: &mut Lowering, otel: &OtelEnvironment) {
    if let Some((url, name)) = &otel.endpoint {
        lowering.file.traces.endpoint = Some(Written::new(url));
        lowering.origins.insert(ENDPOINT.to_owned(), (*name).to_owned());
    }
}

/// Builds the settings of traces. `None` if there is no endpoint or traces are turned off.
pub(super) fn trace_settings(section: &TracesSection, otel: &OtelEnvironment) -> Option<TraceSettings> {
    let endpoint = section.endpoint.as_ref()?.value()?;
    if otel.disabled {
        return None;
    }
    let mut settings = TraceSettings::for_endpoint(endpoint);
    settings.propagates = section.propagate;
    settings.timeout = otel.timeout.unwrap_or(settings.timeout);
    settings.sampling = otel.sampling.unwrap_or_default();
    settings.headers = ExportHeaders(otel.headers.clone().unwrap_or_default());
    settings.resource.extend(otel.resource.clone());
    // By the specification `OTEL_SERVICE_NAME` overrides `service.name` among the resource attributes.
    if let Some(service) = &otel.service {
        settings.resource.insert("service.name".to_owned(), service.clone());
    }
    Some(settings)
}

/// Parses names and values of headers. Values stay percent-encoded.
fn parse_headers(text: &str) -> Option<BTreeMap<String, String>> {
    let pairs = parse_pairs(text)?;
    let are_good = pairs
        .iter()
        .all(|(name, _)| http::HeaderName::from_bytes(name.as_bytes()).is_ok());
    are_good.then_some(pairs)
}

/// Parses names and values of attributes. Values are percent-decoded.
fn parse_attributes(text: &str) -> Option<BTreeMap<String, String>> {
    let decoded = parse_pairs(text)?
        .into_iter()
        .map(|(name, value)| Some((name, decode_percent(&value)?)));
    decoded.collect()
}

/// Parses `NAME=VALUE,NAME=VALUE`.
fn parse_pairs(text: &str) -> Option<BTreeMap<String, String>> {
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

/// Decodes a percent-encoded value.
fn decode_percent(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        // `from_str_radix` would also accept a sign.
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
