//! The identity of an exchange: told by the credential that was presented, once, and never by a body alone.

use http::{HeaderMap, Request};

use super::{credential, data_path::DataPath, error::ProxyError, guard::Refusal, headers::is_signed};
use crate::{
    auth::{
        Caller, Principal,
        principal::{USER_BYTES_MAX, presented},
    },
    provider::Route,
};

/// Identifies the client of a request to a provider. Refuses clients without a token where one is needed.
pub(super) fn identify<B>(path: &DataPath, route: &Route<'_>, request: &Request<B>) -> Result<Caller, ProxyError> {
    let has_profiles = path.profiles.has_profiles(&route.upstream.name);
    let (tokens, query) = (&path.settings.client_tokens, request.uri().query());
    let account = credential::authenticate(tokens, &path.principals, request.headers(), query, has_profiles);
    let account = account.map_err(ProxyError::Refused)?;
    with_user(path, account.principal, request.headers()).map_err(ProxyError::Refused)
}

/// Identifies the client of a request to the ledger API, by the client token wherever it is presented.
///
/// Returns `None` if the request identifies nobody: a signature proves nothing to the proxy.
pub(super) fn identify_reader<B>(path: &DataPath, request: &Request<B>) -> Option<Caller> {
    let (headers, query) = (request.headers(), request.uri().query());
    if is_signed(headers) {
        return None;
    }
    let tokens = &path.settings.client_tokens;
    let account = credential::authenticate(tokens, &path.principals, headers, query, false).ok()?;
    let token = || presented(headers, query).find_map(|secret| tokens.verify(&secret));
    let principal = match account.token {
        None => token().map_or(account.principal, |name| Principal::of_token(&path.principals, name)),
        Some(_) => account.principal,
    };
    with_user(path, principal, headers).ok()
}

/// Adds the user whom a trusted header names.
fn with_user(path: &DataPath, account: Principal, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let settings = &path.settings.principals;
    if settings.single {
        return Ok(Caller::of_account(Principal::single(&path.principals)));
    }
    let caller = Caller::of_account(account);
    let Some(name) = &settings.user_header else {
        return Ok(caller);
    };
    let mut users = headers.get_all(name).iter();
    match (users.next(), users.next()) {
        (None, _) => Ok(caller),
        (Some(user), None) if !user.is_empty() && user.len() <= USER_BYTES_MAX => {
            Ok(caller.with_user(&path.principals, user.as_bytes()))
        }
        _ => Err(Refusal::User),
    }
}
