//! Credentials of requests: from a file or a variable, never from an argument.

use std::path::Path;

use http::{HeaderMap, HeaderName, header::AUTHORIZATION};

use super::arguments::{CallerAccess, KeyHeader};
use crate::auth::Secret;
use crate::cli::api_client::{ApiClient, ApiUrl, ClientError, ProxyFlags, SecretPlace};

const SERVICE_TOKEN: SecretPlace = SecretPlace {
    noun: "the token of the service",
    variable: "ANTIPHON_SERVICE_TOKEN",
    flag: "--token-file",
};

const CALLER_KEY: SecretPlace = SecretPlace {
    noun: "the caller's API key or client token",
    variable: "ANTIPHON_API_KEY",
    flag: "--key-file",
};

/// Returns the client of a tool service, which is the service of this machine if no token is given.
pub(in crate::cli) fn service_client(proxy: &ProxyFlags, token_file: Option<&Path>) -> Result<ApiClient, ClientError> {
    Ok(service_access(proxy, token_file)?.client)
}

/// The way to a proxy for one who runs tools.
pub(in crate::cli) struct ToolAccess {
    pub(in crate::cli) client: ApiClient,
    pub(in crate::cli) token: Secret,
    /// The token is that of this machine's proxy, which counts as its user in claims.
    pub(in crate::cli) is_user: bool,
}

/// Finds the proxy with the token of a service, else that of this machine.
pub(in crate::cli) fn service_access(proxy: &ProxyFlags, token_file: Option<&Path>) -> Result<ToolAccess, ClientError> {
    let url = ApiUrl::of_proxy(proxy)?;
    let given = SERVICE_TOKEN.read_optional(token_file)?;
    let is_user = given.is_none();
    let token = match given {
        Some(token) => token,
        None => SERVICE_TOKEN.read_or_local(None, &url, "the token of a service")?,
    };
    let headers = HeaderMap::from_iter([(AUTHORIZATION, SERVICE_TOKEN.bearer_value(&token)?)]);
    Ok(ToolAccess {
        client: ApiClient::new(url, headers)?,
        token,
        is_user,
    })
}

/// Returns the headers that identify a caller.
pub(super) fn caller_headers(access: &CallerAccess) -> Result<HeaderMap, ClientError> {
    let key = CALLER_KEY.read_secret(access.key_file.as_deref())?;
    let name = match access.key_header {
        KeyHeader::Authorization => AUTHORIZATION,
        KeyHeader::XApiKey => HeaderName::from_static("x-api-key"),
        KeyHeader::XGoogApiKey => HeaderName::from_static("x-goog-api-key"),
        KeyHeader::ApiKey => HeaderName::from_static("api-key"),
        KeyHeader::XAntiphonClientToken => HeaderName::from_static("x-antiphon-client-token"),
    };
    let value = if name == AUTHORIZATION {
        CALLER_KEY.bearer_value(&key)?
    } else {
        CALLER_KEY.header_value(&key)?
    };
    let user = access.user.iter().map(|user| (user.name.clone(), user.value.clone()));
    let mut headers: HeaderMap = user.collect();
    headers.insert(name, value);
    Ok(headers)
}
