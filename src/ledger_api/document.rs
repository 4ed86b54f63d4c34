//! The `OpenAPI` document of the API, derived from its handlers and from the types that they write.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        RefOr, Required,
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::{answers, cancels, intents, owners, refusals::DocumentRefusals, services, tasks};
use crate::api::{ApiBody, json::write_json, problem::ProblemView};

/// Caches may store the document for five minutes: it changes only with the version of the proxy.
const CACHEABLE: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// The document, which never changes while the process runs.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| write_json(&LedgerDocument::openapi()).into());

#[derive(OpenApi)]
#[openapi(
    info(title = "Antiphon ledger", description = "Late results: tool services post the results of tool calls, and the \
        callers of those calls read and acknowledge them. A request with an unknown credential gets the same 404 as a \
        request for an unknown record. A method that a path does not take gets 405 with `allow`. Without a configured \
        service every path but those of intents is 404."),
    modifiers(&LedgerCredentials, &OptionalBodies),
    security(("client_token" = []), ("anthropic_key" = []), ("bearer_key" = []), ("gemini_key" = []),
        ("gemini_query_key" = []), ("azure_key" = [])),
    paths(
        show_document,
        services::post_result,
        services::send_heartbeat,
        services::withdraw_result,
        cancels::request_cancel,
        owners::show_caller,
        owners::look_up_results,
        owners::list_outstanding,
        owners::follow_feed,
        owners::ack_result,
        owners::ack_results,
        owners::close_session,
        intents::claim_intent,
        intents::show_intent,
        intents::send_intent_heartbeat,
        intents::post_intent_result,
        intents::cancel_intent,
        tasks::links::make_task_link,
        tasks::links::revoke_task_link,
        tasks::list::list_tasks,
        tasks::list::ack_task,
        tasks::list::resolve_task,
    ),
    components(schemas(answers::SettledNotice<'_>, ProblemView<'_>)),
    tags(
        (name = "services", description = "Requests of tool services"),
        (name = "callers", description = "Requests of callers about their own calls"),
        (name = "intents", description = "Claims of side effects, before a tool runs"),
        (name = "tasks", description = "The task page: its links, and the requests that it sends with the secret of a \
            link. Without `ledger.task_page` these paths are 404"),
        (name = "document", description = "This document")
    )
)]
struct LedgerDocument;

/// The security schemes of the document.
struct LedgerCredentials;

impl Modify for LedgerCredentials {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        let bearer = |text| {
            SecurityScheme::Http(
                HttpBuilder::new()
                    .scheme(HttpAuthScheme::Bearer)
                    .description(Some(text))
                    .build(),
            )
        };
        let header = |name, text| SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description(name, text)));
        let query = |name, text| SecurityScheme::ApiKey(ApiKey::Query(ApiKeyValue::with_description(name, text)));
        let schemes = [
            (
                "service_token",
                bearer("The token of a tool service: `services.NAME.token`"),
            ),
            (
                "task_link",
                bearer("The secret of a link to the task page: `task_` and 64 hexadecimal digits"),
            ),
            (
                "webhook_id",
                header(
                    "webhook-id",
                    "Standard Webhooks: the id of the message, 256 bytes at most. Each message has its own",
                ),
            ),
            (
                "webhook_timestamp",
                header(
                    "webhook-timestamp",
                    "Standard Webhooks: seconds since 1970, within 300 seconds of the proxy's clock",
                ),
            ),
            (
                "webhook_signature",
                header(
                    "webhook-signature",
                    "Standard Webhooks: `v1,` and the HMAC-SHA256 in base64, by `services.NAME.secret`",
                ),
            ),
            (
                "client_token",
                header("x-antiphon-client-token", "The client token of the caller"),
            ),
            (
                "anthropic_key",
                header("x-api-key", "The credential that the caller sends to Anthropic"),
            ),
            (
                "bearer_key",
                bearer("The credential that the caller sends to OpenAI and compatible providers"),
            ),
            (
                "gemini_key",
                header("x-goog-api-key", "The credential that the caller sends to Gemini"),
            ),
            (
                "gemini_query_key",
                query("key", "The credential that the caller sends to Gemini, in the query"),
            ),
            (
                "azure_key",
                header("api-key", "The credential that the caller sends to Azure"),
            ),
        ];
        for (name, scheme) in schemes {
            components.add_security_scheme(name, scheme);
        }
    }
}

/// The operations whose body may be empty. The macros know no such body.
struct OptionalBodies;

impl Modify for OptionalBodies {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let operations = document.paths.paths.values_mut().filter_map(|path| path.post.as_mut());
        let bodies = operations.filter(|operation| {
            let id = operation.operation_id.as_deref();
            matches!(id, Some("heartbeat" | "withdraw" | "make_task_link"))
        });
        for body in bodies.filter_map(|operation| operation.request_body.as_mut()) {
            if let RefOr::T(body) = body {
                body.required = Some(Required::False);
            }
        }
    }
}

/// Returns this document
#[utoipa::path(get, path = "/ledger/v1/openapi.json", tag = "document", security(()), responses(
    (status = 200, description = "the OpenAPI document", body = serde_json::Value),
    DocumentRefusals,
))]
pub(super) fn show_document() -> Response<ApiBody> {
    let mut answer = Response::new(Full::new(DOCUMENT.clone()).boxed_unsync());
    let fields = answer.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(CACHE_CONTROL, CACHEABLE);
    answer
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::ledger_api::routes::{PATH_PREFIX, ROUTES};

    #[test]
    fn the_document_describes_exactly_the_routes() {
        let document: Value = serde_json::from_slice(&DOCUMENT).unwrap();
        let mut described = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for method in operations.as_object().unwrap().keys() {
                described.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
        let routes = ROUTES.iter();
        let routed: BTreeSet<String> = routes
            .map(|route| format!("{} {PATH_PREFIX}{}", route.method, route.path))
            .collect();
        assert_eq!(described, routed);
        assert_eq!(routed.len(), ROUTES.len());
    }

    #[test]
    fn every_named_credential_is_a_security_scheme() {
        let document: Value = serde_json::from_slice(&DOCUMENT).unwrap();
        let schemes = document["components"]["securitySchemes"].as_object().unwrap();
        let paths = document["paths"].as_object().unwrap().values();
        let operations = paths.flat_map(|path| path.as_object().unwrap().values());
        let ways = operations
            .chain([&document])
            .filter_map(|place| place["security"].as_array());
        let used: BTreeSet<&String> = ways.flatten().flat_map(|way| way.as_object().unwrap().keys()).collect();
        assert_eq!(used, schemes.keys().collect());
    }
}
