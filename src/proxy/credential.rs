//! Authentication of clients, and the replacement of a client's credential by a profile's.

use std::{borrow::Cow, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::AUTHORIZATION,
    request,
    uri::{PathAndQuery, Uri},
};

use super::{guard::RequestRefusal, headers, signature};
use crate::{
    auth::{
        CertificateNames, ClientTokens, Credential, Principal, PrincipalKey, Profile, Secret, TOKEN_PREFIX,
        principal::{presented_secrets, principal_of_credentials},
    },
    provider::{ProviderKind, Upstream, decode_query},
    splice::Segments,
};

/// Headers that contain a credential, or select the account for which it is used.
const CREDENTIAL_HEADERS: [&str; 10] = [
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "cookie",
    "openai-organization",
    "openai-project",
    "chatgpt-account-id",
    "x-goog-user-project",
    "ocp-apim-subscription-key",
];
/// Prefix of the headers and parameters of AWS signatures.
const AWS_PREFIX: &str = "x-amz-";
/// Query parameters that contain a credential.
const CREDENTIAL_PARAMETERS: [&str; 6] = [
    "key",
    "api_key",
    "api-key",
    "access_token",
    "oauth_token",
    "subscription-key",
];

/// Account that a credential or a client token identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account<'t> {
    /// Name of the client token. `None` if the client presented none.
    pub token: Option<&'t str>,
    /// Principal of the account.
    pub principal: Principal,
}

impl<'t> Account<'t> {
    /// Returns the account of the client token with this name.
    pub fn of_token(key: &PrincipalKey, name: &'t str) -> Self {
        Self {
            token: Some(name),
            principal: Principal::of_token(key, name),
        }
    }
}

/// Use of the credential that a client presents to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// A profile's credential replaces it.
    Replaced,
    /// It is passed on to the provider.
    PassedOn,
    /// It is passed on, and the request has a known client token too.
    PassedOnBesideToken,
}

/// Authenticates a client by its client token or its certificate, or identifies it by its credential.
///
/// A client token is sent in `x-antiphon-client-token`, or in place of the credential if the upstream has profiles.
/// If no client token is configured, every client may use the profiles.
///
/// An unknown token is refused for every upstream, so that no client wrongly believes that it is identified. So is a
/// certificate, if any stands for a client. A token overrides the certificate, since it belongs to the one request. A
/// token sent as the credential is recognised by its prefix.
pub fn authenticate_client<'t>(
    tokens: &'t ClientTokens,
    key: &PrincipalKey,
    headers: &HeaderMap,
    query: Option<&str>,
    certificate: Option<&CertificateNames>,
    key_use: KeyUse,
) -> Result<Account<'t>, RequestRefusal> {
    let named = |name: &'t str| Account::of_token(key, name);
    // Without a list of certificates the CA alone decides who may connect, and a certificate names nobody.
    let certificate = certificate.filter(|_| tokens.has_certificates());
    let by_certificate = |names| {
        let name = tokens.find_by_certificate(names);
        name.map(named).ok_or(RequestRefusal::ClientCertificate)
    };
    let mut sent = headers.get_all(headers::CLIENT_TOKEN).iter();
    match (sent.next(), sent.next()) {
        (Some(token), None) => {
            let name = tokens.find_name(token.as_bytes().trim_ascii());
            return name.map(named).ok_or(RequestRefusal::ClientToken);
        }
        // Two tokens could name two accounts.
        (Some(_), Some(_)) => return Err(RequestRefusal::ClientToken),
        (None, _) => {}
    }
    // Mistyped or revoked. No provider must see it, and no certificate must hide that it is wrong.
    let has_unknown_token = || {
        let is_unknown = |secret: &[u8]| {
            secret.starts_with(TOKEN_PREFIX.as_bytes()) && !tokens.is_empty() && tokens.find_name(secret).is_none()
        };
        presented_secrets(headers, query).any(|secret| is_unknown(&secret))
    };
    // The client's credential is not sent, so no provider checks it: only a token gives access to profiles.
    if key_use == KeyUse::Replaced && !tokens.is_empty() {
        let name = presented_secrets(headers, query).find_map(|secret| tokens.find_name(&secret));
        return match (name, certificate) {
            (Some(name), _) => Ok(named(name)),
            (None, Some(names)) if !has_unknown_token() => by_certificate(names),
            (None, _) => Err(RequestRefusal::ClientToken),
        };
    }
    // Beside a known token it may be one of another proxy behind this one.
    if key_use == KeyUse::PassedOn && has_unknown_token() {
        return Err(RequestRefusal::ClientToken);
    }
    if let Some(names) = certificate {
        return by_certificate(names);
    }
    // The provider checks this credential. Its hash is enough to tell callers apart.
    Ok(Account {
        token: None,
        principal: principal_of_credentials(key, headers, query),
    })
}

/// Removes client tokens from the headers in which credentials are passed on. Returns the name of one; `None` if there
/// is none.
///
/// Fails if the query contains one, or if no other credential is left: the provider must never see a client token.
pub fn remove_client_tokens<'t>(
    tokens: &'t ClientTokens,
    headers: &mut HeaderMap,
    query: Option<&str>,
) -> Result<Option<&'t str>, PresentedTokenError> {
    // Without tokens there is nothing to compare with, and no hash to compute.
    if tokens.is_empty() {
        return Ok(None);
    }
    let mut pairs = query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    if pairs.any(|(name, value)| names_credential(name) && tokens.find_name(&decode_query(value)).is_some()) {
        return Err(PresentedTokenError);
    }
    let mut found = None;
    let mut gone: Vec<HeaderName> = Vec::new();
    for (name, value) in headers.iter().filter(|(name, _)| holds_credential(name)) {
        // After a scheme of whichever name, as in `Bearer`.
        let text = value.as_bytes().trim_ascii();
        let last = text.rsplit(u8::is_ascii_whitespace).next().unwrap_or_default();
        if let Some(token) = tokens.find_name(text).or_else(|| tokens.find_name(last)) {
            found = Some(token);
            gone.push(name.clone());
        }
    }
    for name in gone {
        headers.remove(name);
    }
    match found {
        Some(_) if presented_secrets(headers, query).next().is_none() => Err(PresentedTokenError),
        found => Ok(found),
    }
}

/// The error for a client token in the place of the provider's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a client token stands in the place of the provider's key")]
pub struct PresentedTokenError;

/// Outgoing body, as far as a signature can cover it.
#[derive(Clone, Copy, Debug)]
pub enum BodyToSign<'b> {
    /// Complete, in the bytes that are sent: compressed if it is sent compressed.
    Whole(&'b Segments),
    /// Still arriving from the client: it cannot be signed.
    Streamed,
}

/// Reason for which a profile cannot be used for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// A signature needs the whole body, which is too large to be buffered: the client gets a 413.
    #[error("signing failed: the body is too large to be buffered")]
    Streamed,
    /// The request goes to another host than the profile's upstream. This would be a bug: no credential is sent.
    #[error("credential not sent: the request goes to another host than the profile's upstream")]
    WrongHost,
    /// The profile has no credential at present: its source has supplied none, or it has expired.
    #[error("the profile has no valid credential")]
    Awaited,
    /// The request cannot be signed, or the credential is no valid header value.
    #[error("signing failed: the address, a header or the credential is not valid")]
    Unsignable,
}

/// Replaces the credential of the client, or of an earlier attempt, by the profile's.
///
/// Call it last and once for every attempt, on a head that [`headers::for_upstream`] has filtered. A signature is valid
/// only for these bytes, this `content-type` and `now`, the time since 1970.
///
/// On an error the head contains nothing of the profile's credential.
pub fn apply_credential(
    profile: &Profile,
    upstream: &Upstream,
    head: &mut request::Parts,
    body: BodyToSign<'_>,
    now: Duration,
) -> Result<(), ApplyError> {
    // Removed first: the client's own credential must never reach the provider beside the profile's.
    remove_credentials(&mut head.headers);
    head.uri = without_credentials(&head.uri).ok_or(ApplyError::Unsignable)?;
    // A second check of the address: no bug in routing may send a credential to another host.
    let at_home = head.uri.scheme() == Some(&upstream.scheme) && head.uri.authority() == Some(&upstream.authority);
    if !at_home {
        return Err(ApplyError::WrongHost);
    }
    match &profile.credential {
        Credential::Aws(keys) => {
            let BodyToSign::Whole(body) = body else {
                return Err(ApplyError::Streamed);
            };
            signature::sign_aws(keys, head, body, now).ok_or(ApplyError::Unsignable)
        }
        Credential::Key(key) => set_key(&mut head.headers, upstream.kind, key),
        Credential::Bearer(token) => set_bearer(&mut head.headers, token),
        Credential::Awaited { .. } => Err(ApplyError::Awaited),
    }
}

fn set_key(headers: &mut HeaderMap, kind: ProviderKind, key: &Secret) -> Result<(), ApplyError> {
    let name = HeaderName::from_static(kind.credential_header());
    if name == AUTHORIZATION {
        return set_bearer(headers, key);
    }
    headers.insert(name, sensitive_value(key.reveal())?);
    Ok(())
}

fn set_bearer(headers: &mut HeaderMap, token: &Secret) -> Result<(), ApplyError> {
    headers.insert(AUTHORIZATION, sensitive_value(&format!("Bearer {}", token.reveal()))?);
    Ok(())
}

/// Creates a header value that is never logged and never enters the header table of HTTP/2.
fn sensitive_value(value: &str) -> Result<HeaderValue, ApplyError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| ApplyError::Unsignable)?;
    value.set_sensitive(true);
    Ok(value)
}

fn remove_credentials(headers: &mut HeaderMap) {
    let gone: Vec<HeaderName> = headers.keys().filter(|name| holds_credential(name)).cloned().collect();
    for name in gone {
        headers.remove(name);
    }
}

/// Returns `true` for a header that contains a credential, or selects the account for which it is used.
fn holds_credential(name: &HeaderName) -> bool {
    // CGI-like gateways read `_` as `-`, so `x_api_key` may work as a credential too.
    let name = name.as_str().replace('_', "-");
    CREDENTIAL_HEADERS.contains(&name.as_str()) || name.starts_with(AWS_PREFIX)
}

/// Returns `true` for a query parameter that contains a credential.
fn names_credential(name: &str) -> bool {
    // Compared decoded: a provider reads `k%65y` as `key`.
    let name = decode_query(name);
    let name = String::from_utf8_lossy(&name).to_ascii_lowercase();
    CREDENTIAL_PARAMETERS.contains(&name.as_str()) || name.starts_with(AWS_PREFIX)
}

/// Returns the address without query parameters that contain a credential. All others stay byte for byte.
fn without_credentials(uri: &Uri) -> Option<Uri> {
    let holds = |pair: &&str| names_credential(pair.split('=').next().unwrap_or_default());
    // The usual address has no such parameter, and is not rebuilt.
    let Some(query) = uri.query().filter(|query| query.split('&').any(|pair| holds(&pair))) else {
        return Some(uri.clone());
    };
    let kept: Vec<&str> = query.split('&').filter(|pair| !holds(pair)).collect();
    let target = match kept.join("&") {
        query if query.is_empty() => Cow::Borrowed(uri.path()),
        query => Cow::Owned(format!("{}?{query}", uri.path())),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}
