//! A small HTTP client for pages of a proxy on this machine.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use http::{
    Request, Uri, header,
    response::Parts,
    uri::{Authority, Scheme},
};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::proxy_trust::ProxyTrust;

/// An answer with its body.
#[derive(Debug)]
pub(super) struct FetchedPage {
    pub(super) head: Parts,
    pub(super) body: Bytes,
}

/// Sends a GET request to `url` and returns the head of the answer.
pub(super) async fn fetch_head(url: &Uri, trust: ProxyTrust) -> anyhow::Result<Parts> {
    // The body is not needed. Dropping it lets the connection end.
    Ok(fetch_page(url, trust, None).await?.head)
}

/// Sends a GET request to `url` and returns the answer, with its body if it has no more than `bytes_max`.
///
/// `trust` decides on the certificate of an `https` URL.
pub(super) async fn fetch_page(url: &Uri, trust: ProxyTrust, bytes_max: Option<usize>) -> anyhow::Result<FetchedPage> {
    let authority = url.authority().context("the URL names no host")?;
    // An IPv6 host has brackets in a URL, but not for the resolver.
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let has_tls = url.scheme() == Some(&Scheme::HTTPS);
    let port = authority.port_u16().unwrap_or(if has_tls { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await?;
    let request = get_request(url, authority)?;
    if !has_tls {
        return exchange(stream, request, bytes_max).await;
    }
    let name = ServerName::try_from(host.to_owned()).context("the URL names no valid host")?;
    let connector = TlsConnector::from(Arc::new(trust.into_client_config()?));
    let stream = connector
        .connect(name, stream)
        .await
        .context("the TLS handshake failed")?;
    exchange(stream, request, bytes_max).await
}

/// Returns the request for a page, after which the connection ends.
fn get_request(url: &Uri, authority: &Authority) -> http::Result<Request<Empty<Bytes>>> {
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    Request::get(path)
        .header(header::HOST, authority.as_str())
        .header(header::CONNECTION, "close")
        .body(Empty::new())
}

/// Sends the request over an open connection, and reads the answer.
async fn exchange<T>(stream: T, request: Request<Empty<Bytes>>, bytes_max: Option<usize>) -> anyhow::Result<FetchedPage>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async move {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = match bytes_max {
            Some(limit) => collect_limited(body, limit).await?,
            None => Bytes::new(),
        };
        anyhow::Ok(FetchedPage { head, body })
    };
    let (page, _) = tokio::join!(exchange, connection);
    page
}

/// Reads a body of limited size.
async fn collect_limited(body: hyper::body::Incoming, limit: usize) -> anyhow::Result<Bytes> {
    let collected = Limited::new(body, limit).collect().await;
    Ok(collected.map_err(anyhow::Error::from_boxed)?.to_bytes())
}
