//! The trace of a request, and the settings from OpenTelemetry variables.

use std::{collections::BTreeMap, io, time::Duration};

use antiphon::{
    config::{Config, Flags, build_config},
    telemetry::{Telemetry, TraceSampling, TraceSettings},
};
use http::HeaderMap;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// `traceparent` values, and whether they name the trace.
#[rustfmt::skip]
const PARENTS: &[(&[&str], bool)] = &[
    (&["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"], true),
    (&["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff"], true),
    (&["01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"], true),
    (&["cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes"], true),
    (&["cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.what-comes"], false),
    (&["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x"], false),
    (&["ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"], false),
    (&["00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"], false),
    (&["00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"], false),
    (&["00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01"], false),
    (&["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"], false),
    (&["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1"], false),
    (&["00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"], false),
    (&["00-00000000000000000000000000000000-b7ad6b7169203331-01"], false),
    (&["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"], false),
    (&["ää-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"], false),
    (&[""], false),
    (&[], false),
];

#[tokio::test]
async fn a_malformed_parent_is_ignored() {
    let settings = TraceSettings::for_endpoint("http://127.0.0.1:9/v1/traces".parse().unwrap());
    let (telemetry, _exporter) = Telemetry::default().with_traces(Some(settings));
    let mut seen = Vec::new();
    for (said, names) in PARENTS {
        let mut headers = HeaderMap::new();
        for value in *said {
            headers.append("traceparent", http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let trace = telemetry.start_trace(&headers).unwrap();
        assert_eq!(trace.trace_id() == TRACE, *names, "{said:?}");
        assert!(trace.trace_id().len() == 32 && !trace.trace_id().bytes().all(|byte| byte == b'0'));
        seen.push(trace.trace_id());
    }
    seen.sort();
    seen.dedup();
    let own = PARENTS.iter().filter(|(_, names)| !names).count();
    assert_eq!(seen.len(), own + 1, "every trace of ours has a name of its own");
}

fn config(file: &str, variables: &[(&str, &str)]) -> Config {
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    let lookup = |name: &str| variables.get(name).map(ToString::to_string);
    let no_file = |_: &std::path::Path| Err(io::ErrorKind::NotFound.into());
    let lowered = build_config(Some(("antiphon.toml", file)), &Flags::default(), &lookup, &no_file);
    lowered.unwrap_or_else(|error| panic!("{error}")).config
}

/// A row of [`ENDPOINTS`].
type Row = (
    &'static str,
    &'static [(&'static str, &'static str)],
    Option<&'static str>,
    &'static [&'static str],
);

/// File, variables, the endpoint if traces are on, and the unusable variables.
#[rustfmt::skip]
const ENDPOINTS: &[Row] = &[
    ("", &[], None, &[]),
    ("[traces]\npropagate = true", &[], None, &[]),
    ("[traces]\nendpoint = \"http://h:4318\"", &[], Some("http://h:4318/v1/traces"), &[]),
    ("[traces]\nendpoint = \"http://h/\"", &[], Some("http://h/"), &[]),
    ("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:4318")], Some("http://h:4318/v1/traces"), &[]),
    ("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://h/otlp/")], Some("https://h/otlp/v1/traces"), &[]),
    ("", &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://h:4318")], Some("http://h:4318/"), &[]),
    ("", &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://h/t"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://i")], Some("http://h/t"), &[]),
    ("[traces]\nendpoint = \"http://h\"", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://i")], Some("http://i/v1/traces"), &[]),
    ("[traces]\nendpoint = \"http://h\"", &[("OTEL_SDK_DISABLED", "True")], None, &[]),
    ("[traces]\nendpoint = \"http://h\"", &[("OTEL_SDK_DISABLED", "1")], Some("http://h/v1/traces"), &[]),
    ("[traces]\nendpoint = \"http://h\"", &[("OTEL_TRACES_EXPORTER", "none")], None, &[]),
    ("[traces]\nendpoint = \"http://h\"", &[("OTEL_TRACES_EXPORTER", "otlp")], Some("http://h/v1/traces"), &[]),
    ("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"), ("OTEL_TRACES_EXPORTER", "console")], None, &["OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT"]),
    ("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], Some("http://h/v1/traces"), &["OTEL_EXPORTER_OTLP_PROTOCOL"]),
    ("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"), ("OTEL_TRACES_SAMPLER", "xray"), ("OTEL_TRACES_SAMPLER_ARG", "2"), ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c"), ("OTEL_RESOURCE_ATTRIBUTES", "a=%zz")],
        Some("http://h/v1/traces"), &["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER_ARG", "OTEL_TRACES_SAMPLER"]),
];

#[test]
fn the_endpoint_comes_from_the_file_or_a_variable() {
    for (file, variables, endpoint, unusable) in ENDPOINTS {
        let config = config(file, variables);
        let found = config.traces.map(|traces| traces.endpoint.to_string());
        assert_eq!(found.as_deref(), *endpoint, "{file} {variables:?}");
        assert_eq!(config.unusable_variables, *unusable, "{file} {variables:?}");
    }
}

#[test]
fn the_other_variables_reach_their_settings() {
    let defaults = config("[traces]\nendpoint = \"http://h\"", &[]).traces.unwrap();
    assert_eq!(
        defaults,
        TraceSettings::for_endpoint("http://h/v1/traces".parse().unwrap())
    );
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20canary, x-team=a"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "9000"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "service.name=other,deployment.environment.name=a%20b%2Cc",
        ),
        ("OTEL_SERVICE_NAME", "llm-proxy"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental"),
    ];
    let traces = config("", &variables).traces.unwrap();
    assert_eq!(traces.timeout, Duration::from_millis(250));
    assert_eq!(traces.resource["service.name"], "llm-proxy");
    assert_eq!(traces.resource["deployment.environment.name"], "a b,c");
    assert_eq!(traces.headers.0["Authorization"], "Bearer%20canary");
    assert_eq!(
        traces.sampling,
        TraceSampling {
            follows_parent: true,
            share: 0.25
        }
    );
    assert!(!format!("{traces:?}").contains("canary"), "{traces:?}");
    for (name, follows_parent, share) in [
        ("always_on", false, 1.0),
        ("always_off", false, 0.0),
        ("traceidratio", false, 0.25),
        ("parentbased_always_on", true, 1.0),
        ("parentbased_always_off", true, 0.0),
    ] {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h"),
            ("OTEL_TRACES_SAMPLER", name),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ];
        let sampling = config("", &variables).traces.unwrap().sampling;
        assert_eq!(sampling, TraceSampling { follows_parent, share }, "{name}");
    }
}
