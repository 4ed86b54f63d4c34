//! A small HTTP client for pages of a proxy on this machine.

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Uri, header, response::Parts};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// An answer with its body.
#[derive(Debug)]
pub(super) struct FetchedPage {
    pub(super) head: Parts,
    pub(super) body: Bytes,
}

/// Sends a GET request to `url` and returns the head of the answer.
pub(super) async fn fetch_head(url: &Uri) -> anyhow::Result<Parts> {
    // The body is not needed. Dropping it lets the connection end.
    Ok(fetch_page(url, None).await?.head)
}

/// Sends a GET request to `url` and returns the answer, with its body if it has no more than `bytes_max`.
pub(super) async fn fetch_page(url: &Uri, bytes_max: Option<usize>) -> anyhow::Result<FetchedPage> {
    let authority = url.authority().context("the URL names no host")?;
    // An IPv6 host has brackets in a URL, but not for the resolver.
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(header::HOST, authority.as_str())
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
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
