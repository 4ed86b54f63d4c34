//! Pins the paths with a history, their format for each kind of upstream, and the default upstreams.

use antiphon::{
    provider::{ProviderKind, RouteError, Routes, Upstream},
    repair::Mode,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, uri::PathAndQuery};

use crate::{frozen::golden::same_lines, proxy::routes};

const PATHS: &[&str] = &[
    "/messages",
    "/messages/count_tokens",
    "/chat/completions",
    "/responses",
    "/models/m:generateContent",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/messages/batches",
    "/v1/threads/t/messages",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/v1/conversations/c/items",
    "/v1/agents/completions",
    "/api/chat",
    "/api/oauth/profile",
    "/v1/models",
    "/v1beta/models/m:generateContent",
    "/v1beta/models/m:streamGenerateContent",
    "/v1beta/models/m:countTokens",
    "/v1beta/models/m:batchGenerateContent",
    "/v1internal:generateContent",
    "/v1/projects/p/locations/l/publishers/anthropic/models/m:rawPredict",
    "/v1/projects/p/locations/l/publishers/anthropic/models/m:streamRawPredict",
    "/v1/projects/p/locations/l/publishers/mistralai/models/m:rawPredict",
    "/model/anthropic.m/invoke",
    "/model/anthropic.m/invoke-with-response-stream",
    "/model/meta.m/invoke",
    "/model/anthropic.m/converse",
];

/// Headers that select the upstream of a path without a prefix.
const FIELDS: &[Option<&str>] = &[
    None,
    Some("anthropic-version"),
    Some("x-api-key"),
    Some("x-goog-api-key"),
    Some("api-key"),
];

/// Hosts of upstreams without a configured kind.
const HOSTS: &[&str] = &[
    "api.anthropic.com",
    "api.openai.com",
    "generativelanguage.googleapis.com",
    "cloudcode-pa.googleapis.com",
    "us-east5-aiplatform.googleapis.com",
    "aiplatform.googleapis.com",
    "aiplatform.eu.rep.googleapis.com",
    "bedrock-runtime.us-east-1.amazonaws.com",
    "bedrock-runtime.cn-north-1.amazonaws.com.cn",
    "bedrock-mantle.us-east-1.api.aws",
    "bedrock-runtime.us-east-1.api.aws",
    "bedrock-runtime.eusc-de-east-1.amazonaws.eu",
    "vpce-1.bedrock-runtime.us-east-1.vpce.amazonaws.com",
    "me.openai.azure.com",
    "me.openai.azure.us",
    "me.openai.azure.cn",
    "me.cognitiveservices.azure.com",
    "me.services.ai.azure.com",
    "api.deepseek.com",
    "api.mistral.ai",
    "api.x.ai",
    "llm.example.com",
];

/// Returns the upstream of a request, its path there, and the wire.
fn route(routes: &Routes, method: &Method, path: &str, field: Option<&str>) -> String {
    let target: PathAndQuery = path.parse().unwrap();
    let mut headers = HeaderMap::new();
    if let Some(name) = field {
        headers.insert(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("x"));
    }
    match routes.find_route(method, &target, &headers) {
        Ok(route) => {
            let wire = route.wire.map_or_else(|| "-".to_owned(), |wire| wire.to_string());
            format!("{} {} {wire}", route.upstream.name, route.target)
        }
        Err(RouteError::BadPath) => "bad path".to_owned(),
        Err(RouteError::UnknownPath) => "unknown".to_owned(),
        Err(RouteError::PrefixNeeded(api)) => format!("needs the prefix of {api}"),
    }
}

#[test]
fn upstreams_and_formats_of_paths_are_pinned() {
    let upstream = |kind: ProviderKind| Upstream {
        name: kind.label().to_owned(),
        kind,
        scheme: "https".parse().unwrap(),
        authority: "h".parse().unwrap(),
        base_path: String::new(),
        mode: Mode::Repair,
    };
    let of_kinds = Routes::new(ProviderKind::ALL.map(upstream).into());
    let mut facts = Vec::new();
    for kind in ProviderKind::ALL.map(ProviderKind::label) {
        for path in PATHS {
            let asked = format!("/{kind}{path}");
            facts.push(format!(
                "POST {asked} -> {}",
                route(&of_kinds, &Method::POST, &asked, None)
            ));
        }
        let asked = format!("/{kind}/v1/messages");
        facts.push(format!(
            "GET {asked} -> {}",
            route(&of_kinds, &Method::GET, &asked, None)
        ));
    }
    let built_in = routes::routes(&[]);
    for path in PATHS {
        for field in FIELDS {
            let with = field.map(|name| format!(" with {name}")).unwrap_or_default();
            let found = route(&built_in, &Method::POST, path, *field);
            facts.push(format!("POST {path}{with} without a prefix -> {found}"));
        }
    }
    for (name, base) in built_in.base_urls("http://HOST") {
        facts.push(format!("base url of {name}: {base}"));
    }
    for host in HOSTS {
        facts.push(format!(
            "kind of {host}: {}",
            ProviderKind::infer_kind("any", host).label()
        ));
    }
    same_lines("routes.txt", facts);
}
