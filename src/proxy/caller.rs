//! The caller of an exchange, identified by the credential that it presents. Only `BodyRepair` may narrow it later, to
//! the user that a trusted body names.

use http::{Extensions, HeaderMap, HeaderValue, Request};

use super::{
    credential::{self, Account, KeyUse},
    data_path::DataPath,
    error::ProxyError,
    exchange_route::ExchangeRoute,
    guard::RequestRefusal,
    headers::{self, is_signed},
};
use crate::{
    api::ledger_api::LedgerReader,
    auth::{
        Caller, Principal, TokenHash,
        principal::{USER_BYTES_MAX, presented_secrets},
        shared_keys::is_shared_key,
    },
    server::budget::BudgetClient,
    server::{ClientConnection, client_network},
};

/// Identifies the caller of a request to a provider, and the name of its client token; `None` if it sent none.
///
/// Refuses a client that lacks a required client token. Removes tokens that stand beside a credential for the provider.
pub(super) fn identify_caller<'p, B>(
    path: &'p DataPath,
    route: &ExchangeRoute<'_>,
    request: &mut Request<B>,
) -> Result<(Caller, Option<&'p str>), ProxyError> {
    // With profiles the client uses the operator's credentials, which needs a client token if any is configured.
    let has_profiles = route.pool.has_profiles();
    let tokens = &path.settings.client_tokens;
    let removed = if has_profiles {
        // All credentials of the client are removed later.
        None
    } else {
        let uri = request.uri().clone();
        credential::remove_client_tokens(tokens, request.headers_mut(), uri.query()).map_err(|_| {
            ProxyError::TokenAsKey {
                upstream: route.upstream.name.clone(),
            }
        })?
    };
    let query = request.uri().query();
    let key_use = match removed {
        _ if has_profiles => KeyUse::Replaced,
        Some(_) => KeyUse::PassedOnBesideToken,
        None => KeyUse::PassedOn,
    };
    // A token in place of a credential overrides the certificate too.
    let certificate = request.extensions().get().filter(|_| removed.is_none());
    let account = credential::authenticate_client(
        tokens,
        &path.principal_key,
        request.headers(),
        query,
        certificate,
        key_use,
    );
    let account = account.map_err(ProxyError::Refused)?;
    let account = match removed.filter(|_| account.token.is_none()) {
        Some(name) => Account::of_token(&path.principal_key, name),
        None => account,
    };
    let is_shared = account.token.is_none() && has_shared_key(path, request.headers(), query);
    let caller = Caller::of_account(account.principal).with_shared_credential(is_shared);
    let caller = add_header_user(path, caller, request.headers()).map_err(ProxyError::Refused)?;
    Ok((caller, account.token))
}

/// Returns the client whose share of the budgets a request uses.
pub(super) fn budget_client(path: &DataPath, caller: Caller, extensions: &Extensions) -> BudgetClient {
    if path.callers.is_verified_in_memory(caller) {
        // The account: it may have any number of users.
        return BudgetClient::Caller(*caller.account().as_bytes());
    }
    let connection = extensions.get::<ClientConnection>();
    connection
        .and_then(|connection| connection.address)
        .map_or(BudgetClient::Unknown, |address| {
            BudgetClient::Address(client_network(address.0))
        })
}

/// Identifies the sender of a request to the ledger API, by the client token wherever it is presented.
pub(super) fn identify_reader<B>(path: &DataPath, request: &Request<B>) -> LedgerReader {
    if has_local_token(path, request.headers()) {
        let account = if path.settings.principals.is_single {
            Principal::of_all_clients(&path.principal_key)
        } else {
            Principal::of_local_token(&path.principal_key)
        };
        return LedgerReader::Checked(Caller::of_account(account));
    }
    match named_reader(path, request) {
        Some((caller, _)) if caller.is_shared() => LedgerReader::SharedKey,
        Some((caller, true)) => LedgerReader::Checked(caller),
        Some((caller, false)) => LedgerReader::Known(caller),
        None => LedgerReader::Unknown,
    }
}

/// Returns `true` if the only keys of a request are ones that many clients send.
fn has_shared_key(path: &DataPath, head: &HeaderMap, query: Option<&str>) -> bool {
    // On one machine all clients may be one person's.
    let is_local = path.own_address.is_some_and(|address| address.is_loopback());
    let mut secrets = presented_secrets(head, query).peekable();
    !is_local && secrets.peek().is_some() && secrets.all(|secret| is_shared_key(&secret))
}

/// Returns the caller that the credential of a request to the ledger API names, and `true` if the proxy has checked that
/// credential.
fn named_reader<B>(path: &DataPath, request: &Request<B>) -> Option<(Caller, bool)> {
    let (head, query) = (request.headers(), request.uri().query());
    // The proxy has no secret to verify a signature with.
    if is_signed(head, query) {
        return None;
    }
    let tokens = &path.settings.client_tokens;
    // Upstreams with profiles take the token as an API key. Sent that way here, it must name the same caller.
    let token = presented_secrets(head, query).find_map(|secret| tokens.find_name(&secret));
    let certificate = request.extensions().get().filter(|_| token.is_none());
    let key = &path.principal_key;
    let key_use = token.map_or(KeyUse::PassedOn, |_| KeyUse::PassedOnBesideToken);
    let account = credential::authenticate_client(tokens, key, head, query, certificate, key_use).ok()?;
    let token = account.token.or(token);
    let principal = token.map_or(account.principal, |name| Principal::of_token(&path.principal_key, name));
    let is_shared = token.is_none() && has_shared_key(path, head, query);
    let caller = Caller::of_account(principal).with_shared_credential(is_shared);
    let caller = add_header_user(path, caller, head).ok()?;
    // With one principal for all, no credential is needed.
    let is_checked = token.is_some() || path.settings.principals.is_single;
    // A read has no body that could name its user.
    let mut users = head.get_all(headers::USER).iter();
    match (users.next(), users.next()) {
        (None, _) => Some((caller, is_checked)),
        (Some(user), None) if path.settings.principals.trust_body_user && is_user_name(user) => {
            Some((caller.with_user(&path.principal_key, user.as_bytes()), is_checked))
        }
        _ => None,
    }
}

/// Returns `true` if a request has the token that the proxy wrote for commands of its own user.
fn has_local_token(path: &DataPath, head: &HeaderMap) -> bool {
    let presented = |known: &TokenHash| {
        // Never in a query, which ends up in logs.
        let mut secrets = presented_secrets(head, None);
        secrets.any(|secret| TokenHash::hash_token(&secret).matches(known))
    };
    path.local_token.as_ref().is_some_and(presented)
}

fn is_user_name(value: &HeaderValue) -> bool {
    !value.is_empty() && value.len() <= USER_BYTES_MAX
}

/// Re-scopes an account to the user that the trusted header names, if such a header is configured.
fn add_header_user(path: &DataPath, caller: Caller, headers: &HeaderMap) -> Result<Caller, RequestRefusal> {
    let settings = &path.settings.principals;
    if settings.is_single {
        // The operator has declared that all clients on this machine are one.
        return Ok(Caller::of_account(Principal::of_all_clients(&path.principal_key)));
    }
    let Some(name) = &settings.user_header else {
        return Ok(caller);
    };
    let mut users = headers.get_all(name).iter();
    match (users.next(), users.next()) {
        (None, _) => Ok(caller),
        (Some(user), None) if is_user_name(user) => {
            let user = caller.with_user(&path.principal_key, user.as_bytes());
            // The gateway that names the user has authenticated it.
            Ok(user.with_shared_credential(false))
        }
        // Empty, too long or repeated: a guess could mix the records of two users.
        _ => Err(RequestRefusal::User),
    }
}
