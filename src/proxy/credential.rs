//! Who may use the operator's credentials, and how one of them takes the place of the client's.

use std::{borrow::Cow, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::AUTHORIZATION,
    request,
    uri::{PathAndQuery, Uri},
};

use super::{guard::Refusal, headers, signature};
use crate::{
    auth::{
        ClientTokens, Credential, Principal, PrincipalKey, Profile, Secret,
        principal::{decoded, presented},
    },
    provider::{Kind, Upstream},
    splice::Segments,
};

/// Headers that hold a credential, or say whose account a credential is used for.
const CREDENTIALS: [&str; 10] = [
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
/// What headers and parameters of AWS signatures begin with.
const AMAZON: &str = "x-amz-";
/// Query parameters that hold a credential.
const PARAMETERS: [&str; 6] = [
    "key",
    "api_key",
    "api-key",
    "access_token",
    "oauth_token",
    "subscription-key",
];

/// The account that a credential or a client token stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account<'t> {
    /// The name of the client token that was presented.
    pub token: Option<&'t str>,
    /// Its principal.
    pub principal: Principal,
}

/// Tells who asks, and refuses who may not: a client token stands in `x-antiphon-client-token` or, where the upstream
/// has profiles, in the place of the credential. Without any token configured, profiles are everybody's.
///
/// A token that is presented and unknown is refused everywhere, so that nobody mistakes himself for known.
pub fn authenticate<'t>(
    tokens: &'t ClientTokens,
    key: &PrincipalKey,
    headers: &HeaderMap,
    query: Option<&str>,
    has_profiles: bool,
) -> Result<Account<'t>, Refusal> {
    let named = |name: &'t str| Account {
        token: Some(name),
        principal: Principal::of_token(key, name),
    };
    let mut sent = headers.get_all(headers::CLIENT_TOKEN).iter();
    match (sent.next(), sent.next()) {
        (Some(token), None) => {
            let name = tokens.verify(token.as_bytes().trim_ascii());
            return name.map(named).ok_or(Refusal::ClientToken);
        }
        (Some(_), Some(_)) => return Err(Refusal::ClientToken),
        (None, _) => {}
    }
    if has_profiles && !tokens.is_empty() {
        let name = presented(headers, query).find_map(|secret| tokens.verify(&secret));
        return name.map(named).ok_or(Refusal::ClientToken);
    }
    Ok(Account {
        token: None,
        principal: Principal::of(key, headers, query),
    })
}

/// The body that goes up, as far as a signature can see it.
#[derive(Clone, Copy, Debug)]
pub enum Body<'b> {
    /// All of it, as it will be sent: coded, if it is sent coded.
    Whole(&'b Segments),
    /// Still on its way: it cannot be signed.
    Streamed,
}

/// Why a profile cannot be used for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// A signature needs the whole body, and it is too large to be kept: answer 413.
    #[error("the body is too large to be signed")]
    Streamed,
    /// The request goes elsewhere than to the profile's upstream: a mistake of ours, and no credential is given away.
    #[error("the request goes to another host than the profile's upstream")]
    Elsewhere,
    /// The request cannot be signed.
    #[error("the request cannot be signed")]
    Unsignable,
}

/// Puts the profile's credential in the place of whatever the client or an earlier attempt has put there.
///
/// To be called last, on a head that [`headers::for_upstream`] has been over, once for every attempt: a signature holds
/// for these very bytes, this `content-type` and `now`, the time since 1970. On an error nothing of the profile's is in the head.
pub fn apply(
    profile: &Profile,
    upstream: &Upstream,
    head: &mut request::Parts,
    body: Body<'_>,
    now: Duration,
) -> Result<(), ApplyError> {
    remove_credentials(&mut head.headers);
    head.uri = without_credentials(&head.uri).ok_or(ApplyError::Unsignable)?;
    let at_home = head.uri.scheme() == Some(&upstream.scheme) && head.uri.authority() == Some(&upstream.authority);
    if !at_home {
        return Err(ApplyError::Elsewhere);
    }
    match &profile.credential {
        Credential::Aws(keys) => {
            let Body::Whole(body) = body else {
                return Err(ApplyError::Streamed);
            };
            signature::sign(keys, head, body, now).ok_or(ApplyError::Unsignable)
        }
        Credential::Key(key) => set_key(&mut head.headers, upstream.kind, key),
        Credential::Bearer(token) => set_bearer(&mut head.headers, token),
    }
}

fn set_key(headers: &mut HeaderMap, kind: Kind, key: &Secret) -> Result<(), ApplyError> {
    let name = match kind {
        Kind::Anthropic => "x-api-key",
        Kind::Gemini => "x-goog-api-key",
        Kind::Azure => "api-key",
        _ => return set_bearer(headers, key),
    };
    headers.insert(HeaderName::from_static(name), sensitive(key.reveal())?);
    Ok(())
}

fn set_bearer(headers: &mut HeaderMap, token: &Secret) -> Result<(), ApplyError> {
    headers.insert(AUTHORIZATION, sensitive(&format!("Bearer {}", token.reveal()))?);
    Ok(())
}

/// A value that no log shows and no table of HTTP/2 keeps.
fn sensitive(value: &str) -> Result<HeaderValue, ApplyError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| ApplyError::Unsignable)?;
    value.set_sensitive(true);
    Ok(value)
}

fn remove_credentials(headers: &mut HeaderMap) {
    let holds = |name: &&HeaderName| {
        // CGI-like gateways read `_` as `-`.
        let name = name.as_str().replace('_', "-");
        CREDENTIALS.contains(&name.as_str()) || name.starts_with(AMAZON)
    };
    let gone: Vec<HeaderName> = headers.keys().filter(holds).cloned().collect();
    for name in gone {
        headers.remove(name);
    }
}

/// The address without the parameters that hold a credential; all others stay byte for byte.
fn without_credentials(uri: &Uri) -> Option<Uri> {
    let holds = |pair: &&str| {
        let name = decoded(pair.split('=').next().unwrap_or_default());
        let name = String::from_utf8_lossy(&name).to_ascii_lowercase();
        PARAMETERS.contains(&name.as_str()) || name.starts_with(AMAZON)
    };
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
