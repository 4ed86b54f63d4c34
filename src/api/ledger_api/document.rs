//! The parts of the `OpenAPI` document that belong to no operation.

use utoipa::{
    Modify, OpenApi,
    openapi::{
        RefOr, Required,
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::answers;
use crate::api::problem::ProblemView;

/// Returns the document without its operations.
pub(super) fn without_paths() -> utoipa::openapi::OpenApi {
    LedgerDocument::openapi()
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Antiphon ledger", description = "Late results: tool services post the results of tool calls, and the \
        callers of those calls read and acknowledge them. A request with an unknown credential gets the same 404 as a \
        request for an unknown record. A method that a path does not take gets 405 with `allow`. Without a configured \
        service every path but those of intents is 404."),
    modifiers(&LedgerCredentials),
    security(("client_token" = []), ("anthropic_key" = []), ("bearer_key" = []), ("gemini_key" = []),
        ("gemini_query_key" = []), ("azure_key" = [])),
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

/// Adds what the macros cannot say, or only on each operation: bodies that may be empty, and the credentials of callers
/// to those of services.
pub(super) fn complete_operations(mut document: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    let of_callers = document.security.clone().unwrap_or_default();
    let paths = document.paths.paths.values_mut();
    for operation in paths.flat_map(|path| [path.get.as_mut(), path.post.as_mut()]).flatten() {
        let id = operation.operation_id.as_deref().unwrap_or_default();
        if matches!(id, "heartbeat" | "withdraw" | "make_task_link")
            && let Some(RefOr::T(body)) = &mut operation.request_body
        {
            body.required = Some(Required::False);
        }
        let is_of_intents = operation.tags.iter().flatten().any(|tag| tag == "intents");
        if is_of_intents || id == "cancel" {
            let ways = operation.security.get_or_insert_default();
            ways.extend(of_callers.iter().cloned());
        }
    }
    document
}
