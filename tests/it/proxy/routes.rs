//! Routing: method, path and headers select upstream, target and format.

use antiphon::{
    config::{Flags, build_config},
    provider::{BUILT_IN, ProviderKind, RouteError, Routes},
    wire::Wire,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, uri::PathAndQuery};

use crate::support::{
    app::{before, post_with},
    wire::Upstream,
};

pub(crate) fn routes(upstreams: &[&str]) -> Routes {
    let flags = Flags {
        upstreams: upstreams.iter().map(ToString::to_string).collect(),
        ..Flags::default()
    };
    Routes::new(
        build_config(None, &flags, &|_| None, &|_| Err(std::io::ErrorKind::NotFound.into()))
            .unwrap()
            .config
            .upstreams,
    )
}

fn everything() -> Routes {
    routes(&[
        "bedrock=https://bedrock-runtime.us-east-1.amazonaws.com",
        "azure=https://me.openai.azure.com",
        "vertex=https://us-east5-aiplatform.googleapis.com/v1",
        "local=http://127.0.0.1:8000/v1",
        "grocery=https://llm.example/openai/v1/",
        "work=https://api.anthropic.com",
        "path=https://api.anthropic.com/llm",
        "based=https://api.anthropic.com/llm/v1",
        "region=https://eu.api.openai.com",
        "codex=https://chatgpt.com/backend-api/codex",
        "minimax=https://gateway.example",
        "china=https://api.minimaxi.com/anthropic",
        "west=https://api-uw.minimax.io",
        "like=https://minimax.io.example",
        "dash=https://dashscope.aliyuncs.com",
        "ollama=http://127.0.0.1:11434",
    ])
}

/// Returns `upstream target wire`, or the status of the refusal.
fn decide(routes: &Routes, request: &str, headers: &[&str]) -> String {
    let (method, target) = request.split_once(' ').unwrap_or(("POST", request));
    let method: Method = method.parse().unwrap();
    let Ok(target) = target.parse::<PathAndQuery>() else {
        return "unparsed".to_owned();
    };
    let mut map = HeaderMap::new();
    for name in headers {
        map.insert(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("x"));
    }
    match routes.find_route(&method, &target, &map) {
        Ok(route) => {
            let wire = route.wire.map_or_else(|| "-".to_owned(), |wire| wire.to_string());
            assert!(
                route
                    .wire
                    .is_none_or(|wire| Wire::NAMES.iter().any(|(_, known)| *known == wire)),
                "{wire} has no name"
            );
            format!("{} {} {wire}", route.upstream.name, route.target)
        }
        Err(RouteError::BadPath) => "400".to_owned(),
        Err(RouteError::UnknownPath) => "404".to_owned(),
        Err(RouteError::PrefixNeeded(api)) => format!("404 {api}"),
    }
}

fn check(rows: &[(&str, &[&str], &str)]) {
    let routes = everything();
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(request, headers, expected)| {
            let decided = decide(&routes, request, headers);
            (decided != *expected)
                .then(|| format!("{request} {headers:?}\n  expected {expected}\n  decided  {decided}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} rows\n{}", wrong.len(), wrong.join("\n"));
}

/// The AI SDK, opencode and continue leave the version to the base URL, and the base URLs of others have none.
#[test]
fn a_version_that_the_client_left_out_is_added_once() {
    #[rustfmt::skip]
    check(&[
        ("/anthropic/messages", &[], "anthropic /v1/messages anthropic"),
        ("/anthropic/messages?beta=true", &[], "anthropic /v1/messages?beta=true anthropic"),
        ("/anthropic/messages/count_tokens", &[], "anthropic /v1/messages/count_tokens anthropic"),
        ("/anthropic/messages/batches", &[], "anthropic /v1/messages/batches anthropic"),
        ("GET /anthropic/messages/batches/b/results", &[], "anthropic /v1/messages/batches/b/results -"),
        ("GET /anthropic/models", &[], "anthropic /v1/models -"),
        ("GET /anthropic/models/claude", &[], "anthropic /v1/models/claude -"),
        ("/anthropic/v1/messages", &[], "anthropic /v1/messages anthropic"),
        ("/anthropic/v1/v1/messages", &[], "anthropic /v1/v1/messages anthropic"),
        ("/work/messages", &[], "work /v1/messages anthropic"),
        ("/path/messages", &[], "path /llm/v1/messages anthropic"),
        ("/path/v1/messages", &[], "path /llm/v1/messages anthropic"),
        ("/path/llm/messages", &[], "path /llm/v1/messages anthropic"),
        ("/path/llm/v1/messages", &[], "path /llm/v1/messages anthropic"),
        ("/based/messages", &[], "based /llm/v1/messages anthropic"),
        ("/based/v1/messages", &[], "based /llm/v1/messages anthropic"),
        ("/openai/chat/completions", &[], "openai /v1/chat/completions openai-chat"),
        ("/openai/responses", &[], "openai /v1/responses openai-responses"),
        ("/openai/responses/compact", &[], "openai /v1/responses/compact openai-responses"),
        ("/openai/conversations/c/items", &[], "openai /v1/conversations/c/items openai-responses"),
        ("/openai/embeddings", &[], "openai /v1/embeddings -"),
        ("GET /openai/models", &[], "openai /v1/models -"),
        ("GET /openai/responses/resp_1", &[], "openai /v1/responses/resp_1 -"),
        ("/region/chat/completions", &[], "region /v1/chat/completions openai-chat"),
        ("/mistral/chat/completions", &[], "mistral /v1/chat/completions openai-chat-mistral"),
        ("/xai/responses", &[], "xai /v1/responses openai-responses-compatible"),
        ("/groq/openai/chat/completions", &[], "groq /openai/v1/chat/completions openai-chat-compatible"),
        ("/openrouter/chat/completions", &[], "openrouter /api/v1/chat/completions openai-chat-compatible"),
        ("/openrouter/api/chat/completions", &[], "openrouter /api/v1/chat/completions openai-chat-compatible"),
        ("/moonshot/chat/completions", &[], "moonshot /v1/chat/completions openai-chat-compatible"),
        ("/moonshot/anthropic/messages", &[], "moonshot /anthropic/v1/messages anthropic-compatible"),
        ("/gemini/models/m:streamGenerateContent?alt=sse", &[], "gemini /v1beta/models/m:streamGenerateContent?alt=sse gemini"),
        ("GET /gemini/models", &[], "gemini /v1beta/models -"),
        ("/gemini/openai/chat/completions", &[], "gemini /v1beta/openai/chat/completions openai-chat-compatible"),
        ("/gemini/v1/models/m:generateContent", &[], "gemini /v1/models/m:generateContent gemini"),
        ("/gemini/v1internal:generateContent", &[], "gemini /v1internal:generateContent gemini"),
    ]);
}

/// These have a meaning without a version, or none is known.
#[test]
fn no_version_is_added_where_none_belongs() {
    #[rustfmt::skip]
    check(&[
        ("HEAD /anthropic", &[], "anthropic / -"),
        ("GET /anthropic/api/oauth/profile", &[], "anthropic /api/oauth/profile -"),
        ("/anthropic/messagesx", &[], "anthropic /messagesx -"),
        ("/deepseek/chat/completions", &[], "deepseek /chat/completions openai-chat-deepseek"),
        ("/codex/responses", &[], "codex /backend-api/codex/responses openai-responses-compatible"),
        ("/like/chat/completions", &[], "like /chat/completions openai-chat-compatible"),
        ("/local/chat/completions", &[], "local /v1/chat/completions openai-chat-compatible"),
        ("/azure/openai/responses?api-version=preview", &[], "azure /openai/responses?api-version=preview openai-responses"),
        ("/messages", &[], "404"),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_prefix_names_the_upstream_and_is_removed() {
    #[rustfmt::skip]
    check(&[
        ("/anthropic/v1/messages", &[], "anthropic /v1/messages anthropic"),
        ("/anthropic/v1/messages?beta=true", &[], "anthropic /v1/messages?beta=true anthropic"),
        ("/anthropic/v1/messages/count_tokens?beta=true", &[], "anthropic /v1/messages/count_tokens?beta=true anthropic"),
        ("/anthropic/v1/messages/batches", &[], "anthropic /v1/messages/batches anthropic"),
        ("/anthropic/v1/models", &[], "anthropic /v1/models -"),
        ("GET /anthropic/v1/messages", &[], "anthropic /v1/messages -"),
        ("HEAD /anthropic/v1/messages", &[], "anthropic /v1/messages -"),
        ("HEAD /anthropic", &[], "anthropic / -"),
        ("GET /anthropic/", &[], "anthropic / -"),
        ("GET /anthropic?x=1", &[], "anthropic /?x=1 -"),
        ("/work/v1/messages", &["x-goog-api-key"], "work /v1/messages anthropic"),
        ("/openai/v1/chat/completions", &[], "openai /v1/chat/completions openai-chat"),
        ("/openai/v1/chat/completions", &["x-api-key"], "openai /v1/chat/completions openai-chat"),
        ("/openai/v1/responses/compact", &[], "openai /v1/responses/compact openai-responses"),
        ("/openai/v1/responses/input_tokens", &[], "openai /v1/responses/input_tokens openai-responses"),
        ("/openai/v1/responses/resp_1/cancel", &[], "openai /v1/responses/resp_1/cancel -"),
        ("/openai/v1/conversations/conv_1/items", &[], "openai /v1/conversations/conv_1/items openai-responses"),
        ("/openai/v1/conversations", &[], "openai /v1/conversations -"),
        ("/deepseek/v1/responses", &[], "deepseek /v1/responses openai-responses-deepseek"),
        ("/openrouter/v1/responses", &[], "openrouter /api/v1/responses openai-responses-compatible"),
        ("/gemini/v1beta/models/m:countTokens", &[], "gemini /v1beta/models/m:countTokens gemini"),
        ("/gemini/v1beta/models/m:batchGenerateContent", &[], "gemini /v1beta/models/m:batchGenerateContent gemini"),
        ("/gemini/v1beta/models/m:embedContent", &[], "gemini /v1beta/models/m:embedContent -"),
        ("/gemini/v1internal:streamGenerateContent?alt=sse", &[], "gemini /v1internal:streamGenerateContent?alt=sse gemini"),
        ("/v1/models/m:generateContent", &[], "gemini /v1/models/m:generateContent gemini"),
        ("/openai/v1/responses", &[], "openai /v1/responses openai-responses"),
        ("/openai/v1/threads/thread_1/messages", &[], "openai /v1/threads/thread_1/messages -"),
        ("/openai/v1/embeddings", &[], "openai /v1/embeddings -"),
        ("/gemini/v1beta/models/gemini-3-pro:generateContent", &[], "gemini /v1beta/models/gemini-3-pro:generateContent gemini"),
        ("/gemini/v1beta/models/m:streamGenerateContent?alt=sse", &[], "gemini /v1beta/models/m:streamGenerateContent?alt=sse gemini"),
        ("/gemini/v1beta/openai/chat/completions", &[], "gemini /v1beta/openai/chat/completions openai-chat-compatible"),
        ("/deepseek/chat/completions", &[], "deepseek /chat/completions openai-chat-deepseek"),
        ("/deepseek/anthropic/v1/messages", &[], "deepseek /anthropic/v1/messages anthropic-deepseek"),
        ("/mistral/v1/chat/completions", &[], "mistral /v1/chat/completions openai-chat-mistral"),
        ("/mistral/v1/agents/completions", &[], "mistral /v1/agents/completions openai-chat-mistral"),
        ("/like/mistral/v1/agents/completions", &[], "like /mistral/v1/agents/completions openai-chat-compatible"),
        ("/mistral/v1/fim/completions", &[], "mistral /v1/fim/completions -"),
        ("/xai/v1/chat/completions", &[], "xai /v1/chat/completions openai-chat-xai"),
        ("/xai/v1/messages", &[], "xai /v1/messages anthropic-compatible"),
        ("/minimax/anthropic/v1/messages", &[], "minimax /anthropic/v1/messages anthropic-minimax"),
        ("/minimax/anthropic/v1/messages/count_tokens", &[], "minimax /anthropic/v1/messages/count_tokens anthropic-minimax"),
        ("/minimax/v1/chat/completions", &[], "minimax /v1/chat/completions openai-chat-minimax"),
        ("/minimax/v1/responses", &[], "minimax /v1/responses openai-responses-compatible"),
        ("/china/v1/messages", &[], "china /anthropic/v1/messages anthropic-minimax"),
        ("/west/anthropic/v1/messages", &[], "west /anthropic/v1/messages anthropic-minimax"),
        ("/like/v1/messages", &[], "like /v1/messages anthropic-compatible"),
        ("/groq/openai/v1/chat/completions", &[], "groq /openai/v1/chat/completions openai-chat-compatible"),
        ("/moonshot/v1/chat/completions", &[], "moonshot /v1/chat/completions openai-chat-compatible"),
        ("/moonshot/anthropic/v1/messages", &[], "moonshot /anthropic/v1/messages anthropic-compatible"),
        ("/dash/compatible-mode/v1/chat/completions", &[], "dash /compatible-mode/v1/chat/completions openai-chat-compatible"),
        ("/bedrock/model/anthropic.claude-v1%3A0/invoke", &[], "bedrock /model/anthropic.claude-v1%3A0/invoke anthropic-bedrock"),
        ("/bedrock/model/us.anthropic.claude/invoke-with-response-stream", &[], "bedrock /model/us.anthropic.claude/invoke-with-response-stream anthropic-bedrock"),
        ("/bedrock/model/amazon.nova-pro-v1%3A0/invoke", &[], "bedrock /model/amazon.nova-pro-v1%3A0/invoke -"),
        ("/bedrock/model/anthropic.claude/converse", &[], "bedrock /model/anthropic.claude/converse -"),
        ("/bedrock/openai/v1/chat/completions", &[], "bedrock /openai/v1/chat/completions openai-chat-compatible"),
        ("/bedrock/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.x/invoke", &[], "bedrock /model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.x/invoke anthropic-bedrock"),
        ("/azure/openai/v1/responses", &[], "azure /openai/v1/responses openai-responses"),
        ("/azure/openai/responses?api-version=preview", &[], "azure /openai/responses?api-version=preview openai-responses"),
        ("/azure/openai/deployments/d/chat/completions?api-version=2024-10-21", &[], "azure /openai/deployments/d/chat/completions?api-version=2024-10-21 openai-chat"),
        ("/azure/openai/v1/chat/completions", &[], "azure /openai/v1/chat/completions openai-chat"),
        ("/azure/anthropic/v1/messages", &[], "azure /anthropic/v1/messages anthropic"),
        ("/vertex/v1/projects/p/locations/l/publishers/anthropic/models/claude:rawPredict", &[], "vertex /v1/projects/p/locations/l/publishers/anthropic/models/claude:rawPredict anthropic"),
        ("/vertex/v1/projects/p/locations/l/publishers/anthropic/models/claude:streamRawPredict", &[], "vertex /v1/projects/p/locations/l/publishers/anthropic/models/claude:streamRawPredict anthropic"),
        ("/vertex/v1/projects/p/locations/l/publishers/mistralai/models/mistral-medium-3:rawPredict", &[], "vertex /v1/projects/p/locations/l/publishers/mistralai/models/mistral-medium-3:rawPredict openai-chat-mistral"),
        ("/vertex/v1/projects/p/locations/l/publishers/mistralai/models/codestral@2501:streamRawPredict", &[], "vertex /v1/projects/p/locations/l/publishers/mistralai/models/codestral@2501:streamRawPredict openai-chat-mistral"),
        ("/vertex/v1/projects/p/locations/l/publishers/mistralai/models/m:predict", &[], "vertex /v1/projects/p/locations/l/publishers/mistralai/models/m:predict -"),
        ("/vertex/v1/projects/p/locations/l/publishers/deepseek-ai/models/m:rawPredict", &[], "vertex /v1/projects/p/locations/l/publishers/deepseek-ai/models/m:rawPredict -"),
        ("/vertex/v1/projects/p/locations/l/publishers/google/models/gemini:generateContent", &[], "vertex /v1/projects/p/locations/l/publishers/google/models/gemini:generateContent gemini"),
        ("/vertex/v1/projects/p/locations/l/endpoints/openapi/chat/completions", &[], "vertex /v1/projects/p/locations/l/endpoints/openapi/chat/completions openai-chat-compatible"),
    ]);
}

#[test]
fn a_repeated_base_path_is_collapsed() {
    #[rustfmt::skip]
    check(&[
        ("/openrouter/v1/chat/completions", &[], "openrouter /api/v1/chat/completions openai-chat-compatible"),
        ("/openrouter/api/v1/chat/completions", &[], "openrouter /api/v1/chat/completions openai-chat-compatible"),
        ("/openrouter/apis", &[], "openrouter /api/apis -"),
        ("GET /openrouter", &[], "openrouter /api -"),
        ("/local/v1/chat/completions", &[], "local /v1/chat/completions openai-chat-compatible"),
        ("/local/chat/completions", &[], "local /v1/chat/completions openai-chat-compatible"),
        ("/local/v1/messages?beta=true", &[], "local /v1/messages?beta=true anthropic-compatible"),
        ("GET /local/v1", &[], "local /v1 -"),
        ("/grocery/v1/chat/completions", &[], "grocery /openai/v1/chat/completions openai-chat-compatible"),
        ("/grocery/openai/v1/chat/completions", &[], "grocery /openai/v1/chat/completions openai-chat-compatible"),
        ("/grocery/chat/completions", &[], "grocery /openai/v1/chat/completions openai-chat-compatible"),
        ("/grocery/v1beta/x", &[], "grocery /openai/v1/v1beta/x -"),
    ]);
}

#[test]
fn without_a_prefix_the_path_selects_the_upstream() {
    #[rustfmt::skip]
    check(&[
        ("/v1/messages", &[], "anthropic /v1/messages anthropic"),
        ("/v1/messages?beta=true", &[], "anthropic /v1/messages?beta=true anthropic"),
        ("/v1/messages/count_tokens", &[], "anthropic /v1/messages/count_tokens anthropic"),
        ("/v1/messages/batches", &["authorization"], "anthropic /v1/messages/batches anthropic"),
        ("GET /api/oauth/profile", &[], "anthropic /api/oauth/profile -"),
        ("GET /v1/models", &["anthropic-version"], "anthropic /v1/models -"),
        ("GET /v1/models", &["x-api-key"], "anthropic /v1/models -"),
        ("GET /v1/models", &["authorization"], "openai /v1/models -"),
        ("/v1/chat/completions", &["authorization"], "openai /v1/chat/completions openai-chat"),
        ("/v1/chat/completions", &["x-goog-api-key"], "gemini /v1/chat/completions openai-chat-compatible"),
        ("/v1/responses", &[], "openai /v1/responses openai-responses"),
        ("/v1beta/models/m:generateContent", &[], "gemini /v1beta/models/m:generateContent gemini"),
        ("/upload/v1beta/files", &[], "gemini /upload/v1beta/files -"),
        ("/v1alpha/models/m:generateContent", &["x-goog-api-key"], "gemini /v1alpha/models/m:generateContent gemini"),
        ("/v1alpha/models/m:generateContent", &[], "404"),
        ("/model/anthropic.claude/invoke", &[], "bedrock /model/anthropic.claude/invoke anthropic-bedrock"),
        ("/model/anthropic.claude/converse-stream", &[], "bedrock /model/anthropic.claude/converse-stream -"),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/m:rawPredict", &["authorization"], "404 Google Cloud"),
        ("/v1", &[], "404"),
        ("/", &[], "404"),
        ("/chat/completions", &[], "404"),
        ("/messages", &[], "404"),
        ("/Anthropic/v1/messages", &[], "404"),
        ("/%61nthropic/v1/messages", &[], "404"),
        ("/anthropicx/v1/messages", &[], "404"),
        ("GET /favicon.ico", &[], "404"),
        ("OPTIONS *", &[], "404"),
    ]);
}

/// Each of these paths has an owner that its shape does not show, so that a broad prefix would send its key elsewhere.
#[test]
fn a_path_of_another_provider_needs_a_prefix() {
    #[rustfmt::skip]
    check(&[
        ("/api/chat", &[], "404 Ollama"),
        ("/api/generate", &["authorization"], "404 Ollama"),
        ("/api/embed", &[], "404 Ollama"),
        ("/api/embeddings", &[], "404 Ollama"),
        ("GET /api/tags", &[], "404 Ollama"),
        ("/api/show", &[], "404 Ollama"),
        ("GET /api/ps", &[], "404 Ollama"),
        ("/api/chat", &["x-api-key"], "404 Ollama"),
        ("/api/chat", &["x-goog-api-key"], "404 Ollama"),
        ("/ollama/api/chat", &[], "ollama /api/chat -"),
        ("GET /ollama/api/tags", &[], "ollama /api/tags -"),
        // OpenRouter's and Open WebUI's own.
        ("/api/v1/chat/completions", &["authorization"], "404"),
        ("/api/chat/completions", &["authorization"], "404"),
        ("/api/chats", &[], "404"),
        ("/api", &[], "404"),
        ("/api/", &[], "404"),
        // Anthropic's own, as its clients call them.
        ("GET /api/hello", &[], "anthropic /api/hello -"),
        ("GET /api/oauth/profile", &[], "anthropic /api/oauth/profile -"),
        ("GET /api/oauth/usage", &["authorization"], "anthropic /api/oauth/usage -"),
        ("GET /api/oauth/claude_cli/roles", &[], "anthropic /api/oauth/claude_cli/roles -"),
        ("/api/event_logging/batch", &[], "anthropic /api/event_logging/batch -"),
        ("/api/claude_cli_feedback", &[], "anthropic /api/claude_cli_feedback -"),
        ("/api/claude_code/metrics", &[], "anthropic /api/claude_code/metrics -"),
        ("GET /api/web/domain_info?domain=x", &[], "anthropic /api/web/domain_info?domain=x -"),
        ("GET /api/organizations/o/x", &[], "anthropic /api/organizations/o/x -"),
        // A header that only Anthropic's clients send names it too.
        ("GET /api/new_thing", &["anthropic-version"], "anthropic /api/new_thing -"),
        ("GET /api/new_thing", &["anthropic-beta"], "anthropic /api/new_thing -"),
        // Google Cloud.
        ("/v1/publishers/google/models/m:generateContent", &[], "404 Google Cloud"),
        ("/v1/publishers/anthropic/models/m:rawPredict", &["authorization"], "404 Google Cloud"),
        ("/v1/projects/p/locations/l/publishers/google/models/m:generateContent", &["x-goog-api-key"], "404 Google Cloud"),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/m:rawPredict", &["anthropic-version"], "404 Google Cloud"),
        ("/v1beta1/projects/p/locations/l/endpoints/openapi/chat/completions", &["x-goog-api-key"], "404 Google Cloud"),
        // Mistral and Cohere.
        ("/v1/agents/completions", &["authorization"], "404 Mistral"),
        ("/v1/fim/completions", &["authorization"], "404 Mistral"),
        ("/v1/chat", &["authorization"], "404 Cohere"),
        ("/v2/chat", &["authorization"], "404 Cohere"),
        // Servers that follow OpenAI's API have these too.
        ("/v1/rerank", &["authorization"], "openai /v1/rerank -"),
        ("/v1/agents", &["authorization"], "openai /v1/agents -"),
        // Google's uploads, and no others.
        ("/upload/v1beta/files", &[], "gemini /upload/v1beta/files -"),
        ("/upload/storage/v1/b/x/o", &["authorization"], "404"),
    ]);
}

/// The client's key goes nowhere, and the answer says which base URL to set.
#[tokio::test]
async fn a_path_that_needs_a_prefix_gets_a_404_that_names_it() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).with(|builder| builder.upstreams[1].name = "ollama".to_owned());
    let app = app.start().await;
    let fields = [("authorization", "Bearer sk-ollama"), ("x-api-key", "sk-ollama")];
    let answer = app.ask(post_with("/api/chat", &fields, b"{\"messages\":[]}")).await;
    assert_eq!(answer.status(), 404);
    let said = answer.text();
    for wanted in [
        "this is a path of Ollama, which needs the prefix",
        "http://localhost/ollama",
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    assert!(upstream.requests().is_empty());
    let answer = app
        .ask(post_with("/ollama/api/chat", &fields, b"{\"messages\":[]}"))
        .await;
    assert_eq!(answer.status(), 200);
    assert!(upstream.request().line().starts_with("POST /api/chat "));
}

#[test]
fn azure_paths_go_to_azure_upstreams_only() {
    #[rustfmt::skip]
    check(&[
        ("/openai/deployments/d/chat/completions?api-version=2024-10-21", &[], "404"),
        ("/openai/deployments/d/chat/completions", &[], "404"),
        ("/openai/v1/responses?api-version=preview", &[], "404"),
        ("/v1/chat/completions?a=b&api-version=preview", &[], "404"),
        ("/deployments/d/chat/completions", &[], "404"),
        ("/local/deployments/d/chat/completions", &[], "404"),
        ("/openai/v1/responses?my-api-version=1", &[], "openai /v1/responses?my-api-version=1 openai-responses"),
        ("/openai/v1/deployments", &[], "openai /v1/deployments -"),
    ]);
}

#[test]
fn a_path_with_two_readings_is_refused() {
    for path in [
        "/anthropic/../openai/v1/messages",
        "/anthropic/./v1/messages",
        "/anthropic/v1/..",
        "/anthropic/v1/.",
        "/..",
        "/anthropic/%2e%2e/v1/messages",
        "/anthropic/%2E%2e/v1/messages",
        "/anthropic/.%2e/v1/messages",
        "/anthropic/%2e/v1/messages",
        "/anthropic/..;/v1/messages",
        "/anthropic/..;jsessionid=1/v1/messages",
        "/anthropic/%2e%2e;x/v1/messages",
        "/anthropic/..%3b/v1/messages",
        "/anthropic/v1%2fmessages",
        "/anthropic/v1%2Fmessages",
        "/anthropic%2fv1/messages",
        "/anthropic/v1%5cmessages",
        "/anthropic/v1%5Cmessages",
        "/anthropic/%252e%252e/v1/messages",
        "/anthropic/v1%252fmessages",
        "/anthropic/v1%252Fmessages",
        "/anthropic/v1%255cmessages",
        "/anthropic/v1%25252fmessages",
        "//anthropic/v1/messages",
        "//evil.example/v1/messages",
        "/anthropic//v1/messages",
        "/anthropic//evil.example/v1/messages",
        "/anthropic/v1/messages%00",
        "/anthropic/v1/messages%0d%0aHost:%20evil",
        "/anthropic/v1/messages%1F",
        "/anthropic/v1/messages%7f",
        "/anthropic/%c0%ae%c0%ae/v1/messages",
        "/anthropic/v1%c0%afmessages",
        "/bedrock/model/arn%3Aaws%2F..%2Fx/invoke",
        "/bedrock/model/arn%3Aaws%2F%2e%2e%2Fx/invoke",
        "/bedrock/model/anthropic%2Fclaude/invoke",
        "/unknown/../x",
    ] {
        assert_eq!(decide(&everything(), path, &[]), "400", "{path}");
    }
    let backslash = decide(&everything(), "/anthropic\\v1/messages", &[]);
    assert!(matches!(backslash.as_str(), "400" | "unparsed"), "{backslash}");
}

#[test]
fn harmless_escapes_and_dots_pass_unchanged() {
    #[rustfmt::skip]
    check(&[
        ("/gemini/v1beta/models/gemini-2%2e5:generateContent", &[], "gemini /v1beta/models/gemini-2%2e5:generateContent gemini"),
        ("GET /openai/v1/files/my%20file...txt", &[], "openai /v1/files/my%20file...txt -"),
        ("GET /openai/v1/files/..hidden", &[], "openai /v1/files/..hidden -"),
        ("GET /openai/v1/models/ft%3Agpt%3Aorg", &[], "openai /v1/models/ft%3Agpt%3Aorg -"),
        ("GET /openai/v1/files/100%25", &[], "openai /v1/files/100%25 -"),
        ("GET /openai/v1/files/100%2520", &[], "openai /v1/files/100%2520 -"),
        ("GET /openai/v1/files/%zz", &[], "openai /v1/files/%zz -"),
        ("GET /openai/v1//files", &[], "openai /v1//files -"),
        ("GET /openai/v1/files?next=%2F..%2Fx", &[], "openai /v1/files?next=%2F..%2Fx -"),
    ]);
}

#[test]
fn a_fallback_that_is_not_configured_is_unknown() {
    let routes = routes(&[]);
    assert_eq!(decide(&routes, "/model/anthropic.claude/invoke", &[]), "404");
    assert_eq!(decide(&routes, "/bedrock/model/anthropic.claude/invoke", &[]), "404");
    assert_eq!(decide(&Routes::new(Vec::new()), "/v1/messages", &[]), "404");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn kinds_come_from_the_name_then_from_the_host() {
    for (name, host, kind) in [
        ("anthropic", "127.0.0.1", ProviderKind::Anthropic),
        ("vertex", "llm.example", ProviderKind::Vertex),
        ("work", "API.Anthropic.com", ProviderKind::Anthropic),
        ("work", "api.openai.com", ProviderKind::OpenAi),
        ("work", "bedrock-runtime.eu-west-1.amazonaws.com", ProviderKind::Bedrock),
        ("work", "me.openai.azure.com", ProviderKind::Azure),
        ("work", "aiplatform.googleapis.com", ProviderKind::Vertex),
        ("work", "us-east5-aiplatform.googleapis.com", ProviderKind::Vertex),
        ("work", "cloudcode-pa.googleapis.com", ProviderKind::Gemini),
        ("work", "generativelanguage.googleapis.com", ProviderKind::Gemini),
        ("work", "api.groq.com", ProviderKind::Compatible),
        ("work", "api.anthropic.com.evil.example", ProviderKind::Compatible),
        ("work", "127.0.0.1", ProviderKind::Compatible),
        ("work", "aiplatform.us.rep.googleapis.com", ProviderKind::Vertex),
        ("work", "aiplatform.eu.rep.googleapis.com", ProviderKind::Vertex),
        ("work", "bedrock-runtime.us-east-1.api.aws", ProviderKind::Bedrock),
        (
            "work",
            "bedrock-runtime-fips.us-gov-west-1.api.aws",
            ProviderKind::Bedrock,
        ),
        (
            "work",
            "bedrock-runtime.eusc-de-east-1.amazonaws.eu",
            ProviderKind::Bedrock,
        ),
        (
            "work",
            "vpce-0a1b-2c3d.bedrock-runtime.us-east-1.vpce.amazonaws.com",
            ProviderKind::Bedrock,
        ),
        (
            "work",
            "vpce-0a1b-2c3d-us-east-1a.bedrock-runtime.cn-north-1.vpce.amazonaws.com.cn",
            ProviderKind::Bedrock,
        ),
        (
            "work",
            "vpce-0a1b-2c3d.bedrock-mantle.us-east-1.vpce.amazonaws.com",
            ProviderKind::Bedrock,
        ),
        ("work", "me.openai.azure.cn", ProviderKind::Azure),
        ("work", "me.cognitiveservices.azure.cn", ProviderKind::Azure),
        ("work", "me.privatelink.openai.azure.com", ProviderKind::Azure),
        ("work", "bedrock-runtime.s3.amazonaws.com", ProviderKind::Compatible),
        (
            "work",
            "bedrock-runtime.s3.us-east-1.amazonaws.com",
            ProviderKind::Compatible,
        ),
        (
            "work",
            "aiplatform.us.rep.googleapis.com.evil.example",
            ProviderKind::Compatible,
        ),
        ("work", "evilaiplatform.googleapis.com", ProviderKind::Compatible),
        ("work", "notaiplatform.us.rep.googleapis.com", ProviderKind::Compatible),
        ("work", "aiplatform.us.repgoogleapis.com", ProviderKind::Compatible),
        ("work", "storage.us.rep.googleapis.com", ProviderKind::Compatible),
        (
            "work",
            "bedrock-runtimes.us-east-1.amazonaws.com",
            ProviderKind::Compatible,
        ),
        (
            "work",
            "bedrock-runtime.us-east-1.evilamazonaws.com",
            ProviderKind::Compatible,
        ),
        (
            "work",
            "bedrock-runtime.us-east-1.evilapi.aws",
            ProviderKind::Compatible,
        ),
        (
            "work",
            "bedrock-runtime.us-east-1.amazonaws.eu.evil.example",
            ProviderKind::Compatible,
        ),
        ("work", "bedrock-runtime.evil.example", ProviderKind::Compatible),
        (
            "work",
            "vpce-0a1b.bedrock-runtime.us-east-1.vpce.evilamazonaws.com",
            ProviderKind::Compatible,
        ),
        (
            "work",
            "vpce-0a1b.bedrock-agent.us-east-1.vpce.amazonaws.com",
            ProviderKind::Compatible,
        ),
        (
            "work",
            "vpce-0a1b.s3.us-east-1.vpce.amazonaws.com",
            ProviderKind::Compatible,
        ),
        (
            "work",
            "bucket.bedrock-runtime.us-east-1.amazonaws.com",
            ProviderKind::Compatible,
        ),
        ("work", "openai.azure.cn", ProviderKind::Compatible),
        ("work", "meopenai.azure.cn", ProviderKind::Compatible),
        ("work", "apis.minimax.io", ProviderKind::Compatible),
        ("work", "api-uw.minimax.io", ProviderKind::MiniMax),
        ("work", "eu.api.openai.com", ProviderKind::OpenAi),
        ("work", "notapi.openai.com", ProviderKind::Compatible),
        (
            "work",
            "bedrock-runtime.s3-us-west-2.amazonaws.com",
            ProviderKind::Compatible,
        ),
    ] {
        assert_eq!(ProviderKind::infer_kind(name, host), kind, "{name} {host}");
    }
}

#[test]
fn base_urls_match_the_client_settings() {
    let urls = routes(&["local=http://127.0.0.1:8000"]).base_urls("http://127.0.0.1:4747");
    let of = |name: &str| {
        urls.iter()
            .find(|(known, _)| known == name)
            .map(|(_, url)| url.as_str())
    };
    assert_eq!(of("anthropic"), Some("http://127.0.0.1:4747/anthropic"));
    assert_eq!(of("openai"), Some("http://127.0.0.1:4747/openai/v1"));
    assert_eq!(of("gemini"), Some("http://127.0.0.1:4747/gemini"));
    assert_eq!(of("local"), Some("http://127.0.0.1:4747/local"));
    assert_eq!(
        urls.first().map(|(name, _)| name.as_str()),
        Some("anthropic"),
        "built-in ones first, in their order"
    );
    assert_eq!(urls.len(), BUILT_IN.iter().filter(|row| row.url.is_some()).count() + 1);
}
