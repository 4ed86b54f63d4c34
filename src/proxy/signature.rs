//! AWS Signature Version 4 of a request that is ready to be sent. Never copies its body.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign as sign_request},
    sign::v4::SigningParams,
};
use http::{HeaderName, HeaderValue, Uri, header::CONTENT_TYPE, request, uri::Scheme};
use sha2::{Digest, Sha256};
use tracing::dispatcher::{Dispatch, with_default};

use crate::{auth::AwsKeys, splice::Segments};

/// Signs method, path, query, host, date, `content-type` and body. Returns `None` if the request cannot be signed.
pub(super) fn sign_aws(keys: &AwsKeys, head: &mut request::Parts, body: &Segments, now: Duration) -> Option<()> {
    // At level trace the library logs the whole signed request with its session token: its logging is off here.
    let signed = with_default(&Dispatch::none(), || signature_headers(keys, head, body, now))?;
    let field = |(name, value): (String, String)| {
        let mut value = HeaderValue::from_str(&value).ok()?;
        // The session token is a credential, and the signature is valid for minutes.
        value.set_sensitive(true);
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    };
    // All or nothing: a partial signature would only be refused by the provider.
    let signed: Vec<(HeaderName, HeaderValue)> = signed.into_iter().map(field).collect::<Option<_>>()?;
    for (name, value) in signed {
        head.headers.insert(name, value);
    }
    Some(())
}

/// Returns the headers that a signature adds.
fn signature_headers(
    keys: &AwsKeys,
    head: &request::Parts,
    body: &Segments,
    now: Duration,
) -> Option<Vec<(String, String)>> {
    let session = keys.session_token.as_ref().map(|token| token.reveal().to_owned());
    let (id, secret) = (keys.access_key_id.reveal(), keys.secret_access_key.reveal());
    let identity = Credentials::new(id, secret, session, None, "profile").into();
    let params = SigningParams::builder()
        .identity(&identity)
        .region(&keys.region)
        .name(&keys.service)
        .time(SystemTime::UNIX_EPOCH + now)
        .settings(SigningSettings::default())
        .build()
        .ok()?
        .into();
    let host = host_header(&head.uri)?;
    // SigV4 requires `host`, and `content-type` if it is sent. Gateways may change all other headers on the way.
    let mut fields = vec![("host", host.as_str())];
    if let Some(value) = head.headers.get(CONTENT_TYPE) {
        fields.push((CONTENT_TYPE.as_str(), value.to_str().ok()?));
    }
    // Hashed piece by piece: the library would need a contiguous copy of the body.
    let body = SignableBody::Precomputed(body_digest(body));
    let request = SignableRequest::new(head.method.as_str(), head.uri.to_string(), fields.into_iter(), body).ok()?;
    let (instructions, _) = sign_request(request, &params).ok()?.into_parts();
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Some(instructions.headers().map(owned).collect())
}

/// Returns the `Host` that the HTTP client will send.
fn host_header(uri: &Uri) -> Option<String> {
    // The HTTP client leaves out the default port, and the signature must cover the same value.
    let usual = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let host = uri.host()?;
    Some(match uri.port_u16().filter(|port| *port != usual) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

/// Returns the SHA-256 of the concatenated pieces in lowercase hexadecimal.
fn body_digest(body: &Segments) -> String {
    let mut hash = Sha256::new();
    for piece in body.parts() {
        hash.update(piece);
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
